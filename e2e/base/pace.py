"""The pace of a link: what its bandwidth and latency leave of a memory's speed. No emulation of coherence."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

_FORM = re.compile(r"(?P<number>\d+(?:\.\d+)?)\s*(?P<unit>[A-Za-z/]+)")
#: Links are given in powers of ten, memory in powers of two.
_RATES = {
    f"{letter}{i}b/s": base**power for power, letter in enumerate("kmgt", 1) for i, base in (("", 1000), ("i", 1024))
}
_TIMES_NS = {"ns": 1, "us": 1e3, "ms": 1e6, "s": 1e9}
_MOST_NS = 1e9


@dataclass(frozen=True)
class Pace:
    """``rate``: bytes a second, None: as fast as the memory. ``latency_ns``: of one transfer, before its first byte."""

    rate: float | None = None
    latency_ns: float = 0.0

    def __str__(self) -> str:
        given = [rate(self.rate) if self.rate else "", latency(self.latency_ns) if self.latency_ns else ""]
        return ", ".join(filter(None, given))

    def transfer_ns(self, size: int) -> float:
        """How long ``size`` bytes keep the link, without its latency."""
        return size / self.rate * 1e9 if self.rate else 0.0


def pace_of(text: str) -> Pace:
    """``20GB/s,300ns``, or one of the two. Raises ValueError with the cause and the cure."""
    found: dict[str, float] = {}
    for part in text.split(","):
        match = _FORM.fullmatch(part.strip())
        number, unit = (float(match["number"]), match["unit"].lower()) if match else (0.0, "")
        if unit in _RATES:
            what, value = "rate", number * _RATES[unit]
        elif unit in _TIMES_NS and number * _TIMES_NS[unit] <= _MOST_NS:
            what, value = "latency_ns", number * _TIMES_NS[unit]
        else:
            raise ValueError(f"{text!r} is no pace; write a bandwidth and a latency up to a second, as 20GB/s,300ns.")
        if what in found or not value:
            why = "names one of its two figures twice" if what in found else "has a figure of 0"
            raise ValueError(f"{text!r} {why}; write a bandwidth and a latency, or one of them, as 20GB/s,300ns.")
        found[what] = value
    return Pace(**found)


def rate(value: float) -> str:
    """Bytes a second in words."""
    return _in_words(value, {"GB/s": 1e9, "MB/s": 1e6, "kB/s": 1e3, "B/s": 1})


def latency(ns: float) -> str:
    return _in_words(ns, {"s": 1e9, "ms": 1e6, "us": 1e3, "ns": 1})


def _in_words(value: float, units: Mapping[str, float]) -> str:
    """In the largest unit of which there is one; they stand from large to small."""
    unit = next((name for name, size in units.items() if value >= size), [*units][-1])
    return f"{value / units[unit]:.3g} {unit}"
