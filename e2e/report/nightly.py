"""One night: its steps and reports become a verdict, a summary, an issue's text and JUnit, beside earlier good nights.

A night is a folder: ``steps.tsv`` (name, exit code, seconds, command; written by scripts/nightly as steps end) and a
folder per step with what it left. ``night.json`` is what a later night compares with. A rig that failed its self-test
is blind: it may find corruption, but nothing makes such a night green. Time to first token is compared, never a gate.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from statistics import median

from e2e.base.cell import is_same
from e2e.base.errors import (
    EXIT_CORRUPT,
    EXIT_ENGINE,
    EXIT_INCONCLUSIVE,
    EXIT_PASS,
    EXIT_RIG,
    EXIT_USAGE,
)

SCHEMA = "maru-e2e/night/2"
#: What is read of earlier nights: the first version lacked what is gained against no connector.
READ = (SCHEMA, "maru-e2e/night/1")
SELF_TEST, GRID, GAIN = "selftest", "grid", "gain"
#: Their exit code says nothing about the connector: what the machine lacks, and whether a change is worth it.
NO_GATE = ("doctor", GAIN)
#: Worst first. timeout(1) gives 124, or 137 when it had to kill; both are an engine that hangs.
_ORDER = (EXIT_CORRUPT, EXIT_ENGINE, EXIT_RIG, EXIT_USAGE, EXIT_INCONCLUSIVE)
_HUNG = (124, 137)
#: Ended by a signal: what it had judged counts, what it had not is missing.
INTERRUPTED = (130, 143)
_OF_CELL = {"corrupt": EXIT_CORRUPT, "error": EXIT_ENGINE, "inconclusive": EXIT_INCONCLUSIVE}
#: A change of TTFT must leave three robust standard deviations of earlier nights behind, and this share of the median.
_SIGMAS, _LEAST_SHARE, _LEAST_NIGHTS, _MOST_NIGHTS = 3 * 1.4826, 0.05, 3, 14


@dataclass(frozen=True)
class Step:
    """``seconds`` of wall time. ``code``: exit code of ``command``."""

    name: str
    code: int
    seconds: float
    command: str = ""

    @property
    def kind(self) -> str:
        return self.name.partition("-")[0]

    @property
    def gates(self) -> bool:
        return self.kind not in NO_GATE

    @property
    def verdict(self) -> int:
        """The code as the contract knows it: anything unknown is the rig's own failure."""
        if self.code in _HUNG:
            return EXIT_ENGINE
        if self.code in INTERRUPTED:
            return EXIT_INCONCLUSIVE
        return self.code if self.code in (EXIT_PASS, *_ORDER) else EXIT_RIG


@dataclass(frozen=True)
class CellFigures:
    """One cell of one night. ``hits``: external tokens as the engine counted them. Seconds, summed over prompts.
    ``settings``: axis -> value, by which a night of former ids is read. ``baseline_cold_s``, ``speedup`` and
    ``store_cost``: see base/speed.py."""

    verdict: str
    reason: str | None
    hits: int | None
    cold_s: float | None
    external_s: float | None
    settings: Mapping[str, str | int] = field(default_factory=dict)
    baseline_cold_s: float | None = None
    speedup: float | None = None
    store_cost: float | None = None


@dataclass(frozen=True)
class GainFigures:
    """Change of TTFT by the compared change, as a share, with its 95 % interval."""

    median: float
    low: float
    high: float


@dataclass(frozen=True)
class Night:
    """``cells``: "<step>/<cell id>" -> figures. ``machine``: what must be equal before times are compared. ``gaps``:
    grid step -> what it owes, whatever its exit code says ("left no report"). ``gain``: branch and requests at once ->
    figures."""

    name: str
    steps: tuple[Step, ...]
    cells: Mapping[str, CellFigures]
    machine: str = ""
    gaps: Mapping[str, str] = field(default_factory=dict)
    gain: Mapping[str, GainFigures] = field(default_factory=dict)

    @property
    def code(self) -> int:
        """Of the gate: the worst step or cell, and never 0 without a self-test and whole grids that passed."""
        cells = {_OF_CELL[cell.verdict] for cell in self.cells.values() if cell.verdict in _OF_CELL}
        found = cells | {step.verdict for step in self.steps if step.gates} - {EXIT_PASS}
        passed = {step.kind for step in self.steps if step.code == EXIT_PASS}
        if self.gaps or not {SELF_TEST, GRID} <= passed:
            found.add(EXIT_INCONCLUSIVE)
        # a missed fault, or one found where there is none, is no corruption of the connector's: the night is blind
        blind = [step for step in self.steps if step.kind == SELF_TEST and step.verdict == EXIT_CORRUPT]
        found |= {EXIT_INCONCLUSIVE} if blind else set()
        others = [step for step in self.steps if step.gates and step.kind != SELF_TEST]
        if blind and EXIT_CORRUPT not in cells and all(step.verdict != EXIT_CORRUPT for step in others):
            found.discard(EXIT_CORRUPT)
        return next((code for code in _ORDER if code in found), EXIT_PASS)

    @property
    def good(self) -> bool:
        return self.code == EXIT_PASS


@dataclass(frozen=True)
class Change:
    """``kind``: "new corruption", "no longer passes", "not run", "hits", "TTFT". ``worse``: for the reader's eye."""

    kind: str
    cell: str
    text: str
    worse: bool = True


def as_json(night: Night) -> dict[str, object]:
    return {"schema": SCHEMA, "good": night.good, "code": night.code, **asdict(night)}


def compare(tonight: Night, history: Sequence[Night]) -> list[Change]:
    """``history``: good nights, newest first; the newest is compared with, all of them make the noise of times."""
    if not history:
        wrong = [(cell, figures) for cell, figures in tonight.cells.items() if figures.verdict == "corrupt"]
        return [Change("new corruption", cell, f"is corrupt ({figures.reason})") for cell, figures in wrong]
    history = [as_now(night, tonight) for night in history]
    last = history[0]
    changes: list[Change] = []
    for cell, now in tonight.cells.items():
        before = last.cells.get(cell)
        changes.extend(_verdicts(cell, now, before))
        if before is not None and now.hits is not None and before.hits is not None and now.hits != before.hits:
            text = f"{now.hits} external tokens, {before.hits} on {last.name}"
            changes.append(Change("hits", cell, text, worse=now.hits < before.hits))
        if now.verdict == "pass":
            changes.extend(_times(cell, now, tonight.machine, history))
    lost = [cell for cell in last.cells if cell not in tonight.cells]
    return [*changes, *(Change("not run", cell, f"passed on {last.name}, was not run tonight") for cell in lost)]


def as_now(night: Night, tonight: Night) -> Night:
    """An earlier night with its cells under the ids that tonight's have."""

    def renamed(name: str) -> str:
        step, _, cell_id = name.rpartition("/")
        if name in tonight.cells:
            return name
        mine = ((now, *now.rpartition("/"), figures.settings) for now, figures in tonight.cells.items())
        return next((now for now, at, _, i, settings in mine if at == step and is_same(cell_id, i, settings)), name)

    return replace(night, cells={renamed(name): figures for name, figures in night.cells.items()})


def _verdicts(cell: str, now: CellFigures, before: CellFigures | None) -> Iterator[Change]:
    if now.verdict == "corrupt":
        then = "was not run in the last good night" if before is None else f"was {before.verdict}"
        yield Change("new corruption", cell, f"is corrupt ({now.reason}), {then}")
    elif now.verdict != "pass" and before is not None and before.verdict == "pass":
        yield Change("no longer passes", cell, f"is {now.verdict} ({now.reason}), was pass")


def _times(cell: str, now: CellFigures, machine: str, history: Sequence[Night]) -> Iterator[Change]:
    nights = [night for night in history if night.machine == machine][:_MOST_NIGHTS]
    for name, value in (("cold", now.cold_s), ("external", now.external_s)):
        past = [getattr(n.cells[cell], f"{name}_s") for n in nights if cell in n.cells]
        past = [seconds for seconds in past if seconds is not None]
        if value is None or len(past) < _LEAST_NIGHTS:
            continue
        usual, noise = band(past)
        if abs(value - usual) > noise:
            text = (
                f"{name} TTFT {value:.3f} s, usually {usual:.3f} s +- {noise:.3f} s "
                f"({(value / usual - 1):+.0%}, {len(past)} nights)"
            )
            yield Change("TTFT", cell, text, worse=value > usual)


def band(past: Sequence[float]) -> tuple[float, float]:
    """(usual, noise) of earlier nights: what is nearer to the usual than the noise is no change."""
    usual = median(past)
    return usual, max(_SIGMAS * median(abs(p - usual) for p in past), _LEAST_SHARE * abs(usual))


def gate(tonight: Night, changes: Sequence[Change]) -> int:
    """The night's exit code: a green one becomes inconclusive when a cell is missing or serves less than it did."""
    if tonight.code == EXIT_PASS and any(c.kind == "not run" or (c.kind == "hits" and c.worse) for c in changes):
        return EXIT_INCONCLUSIVE
    return tonight.code
