"""Events of a comparison: what is compared, and single measurements."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from e2e.base.kinds import Histogram, kind


@dataclass(frozen=True)
class Pair:
    """``a``, ``b``: ids of cells."""

    branch: str
    a: str
    b: str


@dataclass(frozen=True)
class Names:
    """What each side is."""

    a: str
    b: str


@kind("gain.plan")
class GainPlan:
    """``mode``: one engine, chosen per request, or two connectors on alternating engines. ``double``: was it the
    embedded connector."""

    mode: Literal["axis", "specs"]
    axis: str | None
    names: Names
    pairs: list[Pair]
    concurrency: list[int]
    lengths: list[int]
    repeats: int
    rounds: int
    double: bool
    device: str
    attempt: int


@kind("gain.sample")
class GainSample:
    """``side`` a2 is a once more, for the noise. ``number``: equal for the sides of one pair. ``ttft_s``: client
    seconds per request. ``local``, ``external``: tokens by vLLM's count, None where it has none; ``expected``: external
    tokens predicted, ``least`` where it may be fewer."""

    branch: str
    side: Literal["a", "b", "a2"]
    engine: str
    concurrency: int
    length: int
    round: int
    number: int
    order: int
    ttft_s: list[float]
    server: Histogram
    local: int | None
    external: int | None
    expected: int
    least: int | None = None


@kind("gain.overlap")
class GainOverlap:
    """What timed requests of a cell met: ``loads``; those with layers missing when the forward began (``pending``);
    those for which it really had to wait (``waited``). Of connectors that keep a journal of their loads."""

    branch: str
    engine: str
    cell: str
    loads: int
    pending: int
    waited: int


@dataclass(frozen=True)
class Placed:
    calls: int
    launches: dict[str, float]
    device_us: float | None


@dataclass(frozen=True)
class Counts:
    """See inside/profile.py."""

    device: str
    launches: dict[str, float]
    placement: Placed | None = None


@kind("gain.launches")
class GainLaunches:
    """Counted by the profiler over so many requests, none of them timed."""

    branch: str
    side: Literal["a", "b"]
    engine: str
    length: int
    requests: int
    counts: Counts
