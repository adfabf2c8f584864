"""What a connector is worth to a user, against the same engine without one. The one definition; docs/glossary.md.

Speed-up: TTFT of the cold run on an engine without a connector, over that of the rerun that the connector served.
Store cost: TTFT of the cold run with the connector, which stores on the way, over that without, less one.
Noise: TTFT of the same rerun once more, over that of the first time, less one; nothing was changed between the two.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from e2e.base.judgement import NOT_TIMED, Judgement, LengthTtft
from e2e.base.verdict import Verdict

#: Fewer values than this have a median and no interval.
FEWEST = 5
LEVEL, RESAMPLES = 0.95, 2000


def speedup(baseline_cold_s: float | None, external_s: float | None) -> float | None:
    """None where one of the two was not seen, as on an engine that somebody else started."""
    return baseline_cold_s / external_s if baseline_cold_s and external_s else None


def more(reference_s: float | None, found_s: float | None) -> float | None:
    """0.1: ``found_s`` takes 10 % longer. Store cost, and noise."""
    return found_s / reference_s - 1 if reference_s and found_s else None


@dataclass(frozen=True)
class Figure:
    """A median and its 95 % interval; ``low`` and ``high`` are None of fewer than ``FEWEST`` values."""

    median: float
    low: float | None
    high: float | None
    values: int


@dataclass(frozen=True)
class LengthSpeed:
    """Prompts of ``tokens`` tokens in the cells that passed, one value a prompt and cell. Seconds are medians.
    ``speedup`` is a factor, ``store_cost`` and ``noise`` are shares. Cells of one engine key share a baseline: the
    interval says how cells differ, and the noise how far one of them repeats itself."""

    tokens: int
    cells: int
    baseline_cold_s: float | None
    cold_s: float | None
    local_s: float | None
    external_s: float | None
    speedup: Figure | None
    store_cost: Figure | None
    noise: Figure | None


def by_length(judgement: Judgement) -> tuple[LengthSpeed, ...]:
    """Of what passed and was timed, the shortest first."""
    passed = [c for c in judgement.cells if c.verdict is Verdict.PASS and c.ttft.no_speedup != NOT_TIMED]
    found: dict[int, list[tuple[int, LengthTtft]]] = {}
    for number, cell in enumerate(passed):
        for each in cell.ttft.by_length:
            found.setdefault(each.tokens, []).append((number, each))
    return tuple(_of_length(tokens, found[tokens]) for tokens in sorted(found))


def _of_length(tokens: int, numbered: Sequence[tuple[int, LengthTtft]]) -> LengthSpeed:
    seen = [each for _, each in numbered]
    return LengthSpeed(
        tokens, len({number for number, _ in numbered}),
        *(_median([getattr(each, name) for each in seen])
          for name in ("baseline_cold_s", "cold_s", "local_s", "external_s")),
        speedup=figure(speedup(each.baseline_cold_s, each.external_s) for each in seen),
        store_cost=figure(more(each.baseline_cold_s, each.cold_s) for each in seen),
        noise=figure(more(each.external_s, each.again_s) for each in seen),
    )  # fmt: skip


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.median(known)) if known else None


def figure(values: Iterable[float | None]) -> Figure | None:
    """Of those that were seen; None where none was."""
    known = [value for value in values if value is not None]
    if not known:
        return None
    low, high = interval(known) if len(known) >= FEWEST else (None, None)
    return Figure(float(np.median(known)), low, high, len(known))


def interval(values: Sequence[float]) -> tuple[float, float]:
    """95 % interval of the median: percentile bootstrap (Efron 1979), its random numbers seeded."""
    drawn = np.random.default_rng(0).integers(0, len(values), (RESAMPLES, len(values)))
    medians = np.median(np.asarray(values, dtype=float)[drawn], axis=1)
    low, high = np.quantile(medians, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)
