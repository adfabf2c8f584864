"""The operating point: what so many probes would have seen, and what they have not.

A fault that spoils a share p of loads is seen by n independent probes with 1-(1-p)^n; none wrong of n bounds p below
3/n at 95 % (rule of three, Hanley and Lippman-Hand 1983).
"""

from __future__ import annotations

import math
from collections.abc import Iterable

CONFIDENCE = 0.95
#: Shares of spoilt loads that are always told.
SHARES = (0.01, 0.001)


def seen_with(share: float, probes: int) -> float:
    """Probability that at least one of ``probes`` is struck."""
    return 1 - (1 - share) ** probes


def needed(share: float, confidence: float = CONFIDENCE) -> int:
    """Probes that see it with that confidence."""
    if not (0 < share <= 1 and 0 < confidence < 1):
        raise ValueError(f"a share of {share:g} seen with {confidence:g}: both lie between 0 and 1")
    return 1 if share == 1 else math.ceil(math.log(1 - confidence) / math.log(1 - share))


def detectable(probes: int, confidence: float = CONFIDENCE) -> float:
    """The smallest share that so many probes see with that confidence; 1 where there was none."""
    return 1 - (1 - confidence) ** (1 / probes) if probes else 1.0


def bound(probes: int) -> float:
    """Upper bound of the share at 95 %, none of ``probes`` being wrong."""
    return min(3 / probes, 1.0) if probes else 1.0


def a_time(seconds: float) -> str:
    for unit, size in (("days", 86400), ("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} s"


def sentences(probes: int, wrong: int, every_s: float | None, shares: Iterable[float] = SHARES) -> list[str]:
    """``every_s``: seconds between two probes that see a load, at the current rate; None where none did."""
    if wrong:
        lines = [f"{wrong} wrong of {probes} loads"]
    elif probes:
        lines = [f"0 wrong of {probes} loads: below {bound(probes):.2%} at 95 %"]
    else:
        lines = ["no load was seen, so nothing is known"]
    for share in shares:
        number = needed(share)
        when = a_time(number * every_s) if every_s else "never, at the current rate"
        lines.append(f"a fault in {share:.1%} of loads is seen with 95 % by {number} probes: {when}")
    return lines
