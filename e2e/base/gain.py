"""What the judge hands to the report about a comparison: figures with their intervals, and whether they count."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from e2e.base.errors import EXIT_INCONCLUSIVE
from e2e.base.judgement import Judgement
from e2e.base.verdict import Verdict

#: Values of ``Answer.answer``.
FASTER, SLOWER, WITHIN, NOTHING = "faster", "slower", "within the noise", "no figure"


@dataclass(frozen=True)
class Change:
    """Relative change of TTFT: -0.1 is 10 % less. ``low``..``high``: 95 % interval of the median."""

    median: float
    low: float
    high: float
    pairs: int


@dataclass(frozen=True)
class Answer:
    """``length``: tokens, None: all lengths together. ``client``, ``server``: b against a; ``noise``: a2 against a.
    TTFT medians in seconds. ``why``: where ``answer`` is "no figure". ``left_out``: samples that were not served as
    predicted."""

    branch: str
    concurrency: int
    length: int | None
    answer: str
    why: str = ""
    client: Change | None = None
    noise: Change | None = None
    server: Change | None = None
    server_noise: Change | None = None
    a_s: float | None = None
    b_s: float | None = None
    left_out: int = 0


@dataclass(frozen=True)
class Launches:
    """Means over the counted requests of one length. ``total``: launches per request, ``placement``: those inside
    placements, ``device_us``: their time on the GPU in microseconds; None where it can't be told."""

    branch: str
    side: str
    length: int
    device: str
    total: float
    placement: float | None
    device_us: float | None
    names: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Overlap:
    """Timed overlapped loads of a cell: all, with layers missing when the forward began, and waited for in it."""

    branch: str
    cell: str
    loads: int
    pending: int
    waited: int


@dataclass(frozen=True)
class GainJudgement:
    plan: Mapping[str, object]
    cells: Judgement
    answers: tuple[Answer, ...]
    launches: tuple[Launches, ...]
    overlaps: tuple[Overlap, ...] = ()

    @property
    def exit_code(self) -> int:
        """As for a run; a comparison without any figure is inconclusive."""
        if self.cells.verdict is not Verdict.PASS:
            return self.cells.exit_code
        whole = [answer for answer in self.answers if answer.length is None]
        return 0 if whole and all(answer.answer != NOTHING for answer in whole) else EXIT_INCONCLUSIVE
