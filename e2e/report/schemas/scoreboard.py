"""What scoreboard.json holds, and what each field of it is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from e2e.report.clean import Clean
from e2e.report.schemas.closed import VERSION, Closed
from e2e.report.scoreboard import FaultRow
from e2e.report.scores import Score


class Board(Closed):
    """Of one recording, or of several that ``recordings`` names."""

    schema: Literal["maru-e2e/scoreboard/1"]
    rows: list[FaultRow]
    clean: list[Clean]
    errors: int
    clean_cells: int
    clean_left: int
    replays: int
    alarms: int
    alarm_cells: int
    not_run: int
    scores: list[Score]
    recordings: list[str]


_CLEAN = {
    "clean_cells": "Cells in which nothing was planted.",
    "clean_left": "Those that are neither pass nor corrupt.",
    "replays": "External answers of the others, each compared as a whole.",
    "alarms": "Those of corrupt cells: false alarms.",
    "alarm_cells": "Cells that are corrupt.",
    "not_run": "Cells that their run did not come to, or not to their end.",
}
WORDS: Mapping[str, Mapping[str, str]] = {
    "Board": {
        "schema": VERSION,
        "rows": "One entry per fault and cell in which it was planted.",
        "clean": "Cells in which nothing was planted, by scenario.",
        "errors": "Cells whose engine failed.",
        **_CLEAN,
        "scores": "How many faults were caught, by kind.",
        "recordings": "What was added up; empty for a single run.",
    },
    "FaultRow": {
        "fault": "Its name.",
        "kind": "What kind of fault it is.",
        "scenario": "Story of the cell.",
        "cell": "Cell in which it was planted, less the fault.",
        "outcome": "caught: by a named check, and the same cell without it passed; missed; or undecided.",
        "why": "Of what was not caught; else empty.",
        "checks": "Those that spoke.",
        "located": "Did the digests name the pattern right, and the rank? Null without digests.",
        "pattern": "What the digests took it for.",
        "where": "First wrong place, by digests.",
        "claimed_speedup": "What would have been claimed without the check.",
    },
    "Clean": {"scenario": "Their story.", **_CLEAN},
    "Score": {
        "kind": "Kind of fault.",
        "gate": "Faults caught by the story that every submission is put through.",
        "full": "Faults caught by any story.",
        "faults": "Faults that were planted.",
    },
}  # fmt: skip
