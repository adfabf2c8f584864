"""What many nights say together: whether a cell stands, is broken or comes and goes, and how times run in noise."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from e2e.report.nightly import CellFigures, Night, as_now, band

#: Nights, counted back from the last, by which a cell is called what it is; and those that are drawn.
WINDOW, DRAWN = 14, 60
#: Nights in a row after which what fails is broken, whatever was before.
BROKEN_FOR = 3
STEADY, MENDED, NEW, BROKEN, FLAKY = "steady", "mended", "new", "broken", "flaky"
GAIN = "gain: "
#: Fewest earlier nights that make a band.
_LEAST = 3


@dataclass(frozen=True)
class Standing:
    """``word``: one of the above. ``since``: the night from which on it has been as it is now (passing or not).
    ``failed`` of ``of``: nights of the window in which it did not pass. ``seen``: night -> verdict."""

    cell: str
    word: str
    verdict: str
    since: str
    failed: int
    of: int
    seen: Mapping[str, str]


@dataclass(frozen=True)
class Trend:
    """``values``: one a night, oldest first, None where there is none; the last is tonight's. ``low``..``high``: where
    earlier nights say that noise keeps it; None of too few. ``spans``: intervals of single values, where known."""

    name: str
    unit: str
    nights: tuple[str, ...]
    values: tuple[float | None, ...]
    low: float | None
    high: float | None
    spans: tuple[tuple[float, float] | None, ...] = ()

    @property
    def outside(self) -> bool:
        """Does the last night lie outside the noise?"""
        now = self.values[-1]
        return now is not None and self.low is not None and not self.low <= now <= self.high


def standings(nights: Sequence[Night]) -> list[Standing]:
    """``nights``: oldest first. Of the cells of the last one, those first that need a look."""
    order = (BROKEN, NEW, FLAKY, MENDED, STEADY)
    now = nights[-1]
    named = [as_now(night, now) for night in nights]
    found = [
        standing(cell, [(night.name, night.cells[cell].verdict) for night in named if cell in night.cells])
        for cell in now.cells
    ]
    return sorted(found, key=lambda each: order.index(each.word))


def standing(cell: str, seen: Sequence[tuple[str, str]]) -> Standing:
    """``seen``: (night, verdict), oldest first. Which verdict it is when it does not pass is not told apart."""
    passed = [verdict == "pass" for _, verdict in seen[-WINDOW:]]
    changes = sum(a != b for a, b in pairwise(passed))
    streak = next((n for n, each in enumerate(reversed(passed)) if each != passed[-1]), len(passed))
    return Standing(
        cell, _word(passed[-1], changes, streak), seen[-1][1], seen[-streak][0], passed.count(False), len(passed),
        dict(seen[-WINDOW:]),
    )  # fmt: skip


def _word(passes: bool, changes: int, streak: int) -> str:
    if passes:
        return STEADY if changes == 0 else FLAKY if changes > 2 else MENDED
    if streak >= BROKEN_FOR or changes == 0:
        return BROKEN
    if changes > 1:
        return FLAKY
    return NEW if streak == 1 else BROKEN


def trends(nights: Sequence[Night]) -> list[Trend]:
    """Of the nights that ran on what the last one ran on, oldest first. Times as shares of what is usual in the same
    cell, medians over the cells that passed."""
    now = nights[-1]
    alike = [as_now(night, now) for night in nights if night.machine == now.machine][-DRAWN:]
    found = [
        _times("TTFT without connector", alike, lambda cell: cell.baseline_cold_s),
        _times("TTFT external", alike, lambda cell: cell.external_s),
        _trend("speed-up", "x", alike, [_median(_passed(night, lambda cell: cell.speedup)) for night in alike]),
        *(_gain(branch, alike) for branch in now.gain),
    ]
    return [each for each in found if sum(value is not None for value in each.values) > 1]


def _times(name: str, nights: Sequence[Night], take: Callable[[CellFigures], float | None]) -> Trend:
    taken = [_passed(night, take) for night in nights]
    usual = {cell: median([night[cell] for night in taken if cell in night]) for night in taken for cell in night}
    values = [_median({cell: value / usual[cell] for cell, value in night.items() if usual[cell]}) for night in taken]
    return _trend(name, "of usual", nights, values)


def _passed(night: Night, take: Callable[[CellFigures], float | None]) -> dict[str, float]:
    values = {cell: take(figures) for cell, figures in night.cells.items() if figures.verdict == "pass"}
    return {cell: value for cell, value in values.items() if value is not None}


def _median(values: Mapping[str, float]) -> float | None:
    return median(values.values()) if values else None


def _gain(branch: str, nights: Sequence[Night]) -> Trend:
    seen = [night.gain.get(branch) for night in nights]
    values = [each and each.median for each in seen]
    return _trend(f"{GAIN}{branch}", "", nights, values, [each and (each.low, each.high) for each in seen])


def _trend(
    name: str, unit: str, nights: Sequence[Night], values: Sequence[float | None],
    spans: Sequence[tuple[float, float] | None] = (),
) -> Trend:  # fmt: skip
    past = [value for value in values[:-1] if value is not None]
    usual, noise = band(past) if len(past) >= _LEAST else (None, None)
    low, high = (None, None) if usual is None else (usual - noise, usual + noise)
    if low is not None and not name.startswith(GAIN):  # a time, or a factor, is never less than none
        low = max(low, 0.0)
    return Trend(name, unit, tuple(night.name for night in nights), tuple(values), low, high, tuple(spans))
