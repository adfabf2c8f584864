"""Events of a comparison: what is compared, and single measurements."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from e2e.base.kinds import kind
from e2e.base.kinds_arm import Histogram


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
    embedded connector. ``repeats``: pairs per length and look, of ``looks`` at most. ``effect``: smallest saving that
    matters, a share of TTFT."""

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
    looks: int = 1
    effect: float = 0.05


@kind("gain.sample")
class GainSample:
    """``side`` a2 is a once more, for the noise. ``number``: equal for the sides of one pair. ``ttft_s``: client
    seconds per request. ``local``, ``external``: tokens by vLLM's count, None where it has none; ``expected``: external
    tokens predicted, ``least`` where it may be fewer. ``look``: of which batch of pairs it is."""

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
    look: int = 1


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


@kind("gain.timings")
class GainTimings:
    """What a connector says that its timed loads took on the host, seconds, summed over ``loads``: reading from the
    pool, and placing (of a CPU: on a GPU it goes on after the host has launched it)."""

    branch: str
    engine: str
    cell: str
    concurrency: int
    length: int
    loads: int
    read_s: float
    place_s: float | None


@kind("gain.copy")
class GainCopy:
    """The machine's own copy, in the engine's process: the fastest of a few of ``bytes``, ``seconds`` long. ``how``: of
    pinned memory to the GPU, or of memory to memory on a CPU."""

    branch: str
    engine: str
    bytes: int
    seconds: float
    how: str


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


@dataclass(frozen=True)
class Rows:
    """Microseconds from the first on, [start, end] each: copies to and from the device, placement calls, kernels of
    attention and of the rest of the forward; see inside/timeline.py."""

    to_device: list[tuple[float, float]]
    from_device: list[tuple[float, float]]
    placement: list[tuple[float, float]]
    attention: list[tuple[float, float]]
    forward: list[tuple[float, float]]


@kind("gain.timeline")
class GainTimeline:
    """What the GPU did when, while one request was loaded, alone and under the profiler, so not timed."""

    branch: str
    side: Literal["a", "b"]
    engine: str
    length: int
    rows: Rows
