"""What the device did when: the activities of a profile, sorted into the rows of a picture. Pure; times in
microseconds on the profiler's clock."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

#: An attention kernel says so in its name: flash::FlashAttnFwdSm90, kernel_unified_attention_2d, fmha_.. of others;
#: reshape_and_cache_flash only writes the cache.
ATTENTION = re.compile(r"attn|attention|(?<!cache_)flash|fmha|BatchPrefill|BatchDecode", re.IGNORECASE)
#: Intervals kept of a row; of more the closest are joined.
KEPT = 4096

Intervals = list[tuple[float, float]]


@dataclass(frozen=True)
class Activity:
    """A kernel, copy or fill, or a range that the profiler mirrors onto the stream of what was launched in it."""

    name: str
    stream: object
    start_us: float
    end_us: float


def calls(activities: Sequence[Activity], ranges: Iterable[Activity]) -> list[list[Activity]]:
    """Of each range the activities that begin in it, on its stream; each activity is of one range."""
    ordered = sorted(ranges, key=lambda each: each.start_us)
    found: list[list[Activity]] = [[] for _ in ordered]
    for activity in sorted(activities, key=lambda each: each.start_us):
        for each, mine in zip(ordered, found, strict=True):
            if activity.stream == each.stream and each.start_us <= activity.start_us <= each.end_us:
                mine.append(activity)
                break
    return found


def rows(activities: Sequence[Activity], placements: Iterable[Sequence[Activity]]) -> dict[str, Intervals]:
    """{row: [(start, end), ..]} in the order of time, from the first activity on. ``placements``: what each placement
    call launched, see ``calls``; one interval a call. ``forward``: what else ran on a stream that attention ran on (on
    any, where no kernel calls itself attention), without copies and fills."""
    spans = [(min(a.start_us for a in call), max(a.end_us for a in call)) for call in placements if call]
    inside = {a for call in placements for a in call}
    others = [a for a in activities if a not in inside]
    kernels = [a for a in others if not a.name.startswith(("Memcpy", "Memset"))]
    attention = [a for a in kernels if ATTENTION.search(a.name)]
    rest = [a for a in kernels if not ATTENTION.search(a.name)]
    streams = {a.stream for a in attention}
    found = {
        "to_device": _spans(a for a in others if a.name.startswith("Memcpy HtoD")),
        "from_device": _spans(a for a in others if a.name.startswith("Memcpy DtoH")),
        "placement": spans,
        "attention": _spans(attention),
        "forward": _spans(a for a in rest if a.stream in streams or not streams),
    }
    zero = min((start for each in found.values() for start, _ in each), default=0.0)
    return {name: _few([(round(s - zero, 1), round(e - zero, 1)) for s, e in sorted(each)])
            for name, each in found.items()}  # fmt: skip


def _spans(activities: Iterable[Activity]) -> Intervals:
    return [(each.start_us, each.end_us) for each in activities]


def _few(intervals: Intervals) -> Intervals:
    gap = 0.1
    while len(intervals) > KEPT:
        intervals, gap = list(_joined(intervals, gap)), gap * 2
    return intervals


def _joined(intervals: Intervals, gap: float) -> Iterator[tuple[float, float]]:
    start, end = intervals[0]
    for low, high in intervals[1:]:
        if low > end + gap:
            yield start, end
            start, end = low, high
        end = max(end, high)
    yield start, end
