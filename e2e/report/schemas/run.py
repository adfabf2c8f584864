"""What report.json holds."""

from __future__ import annotations

from typing import Literal

import msgspec

from e2e.base.judgement import Hits, Oracle, Ttft
from e2e.base.speed import LengthSpeed
from e2e.report.schemas.closed import Closed, Table, Verdict


class Attempt(Closed):
    attempt: int
    began: str | float | None
    seconds: float
    ended: bool


class Floor(Closed):
    """See overhead.py."""

    total_s: float | None
    starts_s: float | None
    tokens_s: float | None
    ratio: float | None
    digest_share: float | None


class Run(Closed):
    """``program`` and ``folder``: the words that start the rig, and where it was started; null in old recordings."""

    run_id: str | None
    command: str | list[str] | None
    program: list[str] | None
    folder: str | None
    versions: Table | None
    machine: Table | None
    settings: Table | None
    began: str | float | None
    seconds: float
    floor: Floor
    attempts: list[Attempt]


class Engine(Closed):
    """An engine key and a role; times are sums over its starts, in seconds."""

    key: str
    role: str
    starts: int
    start_s: float
    stop_s: float
    failures: int
    versions: Table


class Finding(Closed):
    rule: str
    verdict: Verdict
    reason: str
    sentence: str
    evidence: Table


class Cell(Closed):
    """Of a cell that passed, ``reason`` is null and ``findings`` is empty. ``reproduce``: a command line."""

    id: str
    settings: Table
    effective: Table
    engine_key: str
    adapter: str
    attempt: int
    verdict: Verdict
    reason: str | None
    findings: list[Finding]
    first_generation: Literal["identical", "split noise", "not reproduced"] | None
    hits: Hits
    oracle: Oracle
    ttft: Ttft
    blind: list[Table]
    fault: str | None
    reproduce: str


class Invalid(Closed):
    settings: Table
    why: str


class NotTried(Closed):
    """A scenario that the run did not play, and what it provokes; empty where this version does not know it."""

    scenario: str
    provokes: str


class Summary(Closed):
    verdict: Verdict
    exit_code: Literal[0, 1, 3, 4]
    cells: int
    passed: int = msgspec.field(name="pass")
    corrupt: int
    inconclusive: int
    error: int
    first_generation_identical: int


class Report(Closed):
    schema: Literal["maru-e2e/report/3"]
    run: Run
    engines: list[Engine]
    cells: list[Cell]
    ttft: list[LengthSpeed]
    invalid: list[Invalid]
    notes: list[str]
    summary: Summary
    not_tried: list[NotTried] | msgspec.UnsetType = msgspec.UNSET
