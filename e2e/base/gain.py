"""What the judge hands to the report about a comparison: figures with their intervals, and whether they count."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from e2e.base.errors import EXIT_INCONCLUSIVE
from e2e.base.judgement import Judgement
from e2e.base.verdict import Verdict

#: Values of ``Answer.answer``: beyond the noise; within it, where what was sought would have been seen; where it would
#: not; and nothing was measured.
FASTER, SLOWER, WITHIN, UNSEEN, NOTHING = (
    "faster", "slower", "within the noise", "can't be seen here", "no figure",
)  # fmt: skip
#: No more pairs are drawn then.
SETTLED = (FASTER, SLOWER, WITHIN)


@dataclass(frozen=True)
class Change:
    """Relative change of TTFT: -0.1 is 10 % less. ``low``..``high``: interval of the median, see
    judge/sequential.py."""

    median: float
    low: float
    high: float
    pairs: int


@dataclass(frozen=True)
class Share:
    """What the part that is changed takes of side a's TTFT: the most that any change of it can save. ``what`` it is and
    who measured it; ``seconds`` a request. ``at_copy_speed``: derived, what it would be if a request took what vLLM's
    own cache takes, its bytes at the machine's own copy speed, and that part; None where no copy was measured."""

    what: str
    seconds: float
    share: float
    at_copy_speed: float | None = None


@dataclass(frozen=True)
class Answer:
    """``length``: tokens, None: all lengths together. ``client``, ``server``: b against a; ``noise``: a2 against a.
    TTFT medians in seconds. ``why``: where ``answer`` is "no figure". ``left_out``: samples that were not served as
    predicted. ``look``: after which of ``looks`` it was given. ``smallest``: the smallest saving that it could have
    told from noise, ``sought``: the one that mattered; shares of TTFT. ``share``: None where nobody knows."""

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
    look: int = 1
    looks: int = 1
    smallest: float | None = None
    sought: float | None = None
    share: Share | None = None


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
class Hidden:
    """``load_us``: microseconds in which something was copied to the GPU or placed; ``share`` of it during which the
    forward's kernels ran, too. ``layer``: of which."""

    layer: int
    load_us: float
    share: float


@dataclass(frozen=True)
class Timeline:
    """One loaded request under the profiler. ``rows``: as recorded (kinds_gain.py), in microseconds. ``load_us``,
    ``share``: as of ``Hidden``, of all layers; ``share`` is None where nothing was copied. ``all_us``: from the first
    of all to the end of the forward, in which what the host does beside the load shows, too. ``layers``: of a load that
    was placed layer by layer."""

    branch: str
    side: str
    length: int
    load_us: float
    share: float | None
    all_us: float
    layers: tuple[Hidden, ...]
    rows: Mapping[str, Sequence[tuple[float, float]]]


@dataclass(frozen=True)
class GainJudgement:
    """``copy_speed``: of the machine, bytes a second, None where it was not measured."""

    plan: Mapping[str, object]
    cells: Judgement
    answers: tuple[Answer, ...]
    launches: tuple[Launches, ...]
    overlaps: tuple[Overlap, ...] = ()
    copy_speed: float | None = None
    timelines: tuple[Timeline, ...] = ()

    @property
    def exit_code(self) -> int:
        """As for a run; a branch without a figure, or whose answer can't be seen here, is inconclusive."""
        if self.cells.verdict is not Verdict.PASS:
            return self.cells.exit_code
        whole = [answer for answer in self.answers if answer.length is None]
        return 0 if whole and all(answer.answer in SETTLED for answer in whole) else EXIT_INCONCLUSIVE
