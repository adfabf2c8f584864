"""Intervals of a median that may be looked at more than once, and the smallest effect that one can tell from noise.

Looked at after every batch of pairs, 95 % intervals would miss the truth far more often than once in 20. So the error
rate is spent over the looks by the Pocock-type function of Lan and DeMets ("Discrete sequential boundaries for clinical
trials", Biometrika 70, 1983), and each look has what it adds for itself (Bonferroni), which holds however looks hang
together. Each interval is the median's by order statistics, as of the sign test (Conover, "Practical Nonparametric
Statistics", 3.2): exact for any distribution. So an answer, however early, is wrong at most as often as stated.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist

#: Of one answer: how often a change that does nothing may be called one, over all looks together.
ERROR_RATE = 0.05
#: Of the smallest effect: how often it would have been found.
POWER = 0.8


def spent(look: int, looks: int) -> float:
    """What the ``look``-th of so many evenly spaced looks may err by itself; the first is 1."""

    def until(share: float) -> float:
        return ERROR_RATE * math.log(1 + (math.e - 1) * share)

    return until(look / looks) - until((look - 1) / looks)


def interval(values: Sequence[float], error_rate: float) -> tuple[float, float] | None:
    """Holds the median of where they come from but for ``error_rate``. None where so few values can't."""
    below = _below(len(values), error_rate)
    ordered = sorted(values)
    return (ordered[below - 1], ordered[-below]) if below else None


def fewest(error_rate: float) -> int:
    """So many values have an interval."""
    return 1 + math.ceil(-math.log2(error_rate))


def _below(count: int, error_rate: float) -> int:
    """The greatest k so that the median lies outside of the k-th smallest and the k-th greatest value with
    ``error_rate`` at most."""
    tail, below = 0, 0
    for k in range(count // 2 + 1):
        tail += math.comb(count, k)
        if 2 * tail > error_rate * 2**count:
            break
        below = k + 1
    return below


def smallest(low: float, high: float, floor: float, error_rate: float) -> float:
    """Natural logs of ratios in, a share of TTFT out: the least saving that a run with an interval as wide and a noise
    ``floor`` as high finds beyond the noise in four of five times (minimum detectable effect: Bloom, Evaluation Review
    19 (1995)). The interval must lie beyond the floor with all its width, and the median must be lucky enough."""
    half, normal = (high - low) / 2, NormalDist()
    lucky = normal.inv_cdf(POWER) / normal.inv_cdf(1 - error_rate / 2)
    return -math.expm1(-(floor + half * (1 + lucky)))
