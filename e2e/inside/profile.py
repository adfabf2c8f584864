"""What torch's profiler saw between start and stop: launches, counted in all and inside the placement of loads, or what
the device did when.

On CUDA a launch is a kernel, a copy or a fill on the device; on a CPU, where nothing is launched, an ATen operation
that no other one called. Profiling slows requests down, so profiled requests are never timed ones.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager

import torch
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile, record_function

from e2e.inside.timeline import Activity, Intervals, calls, rows

#: Range around every placement call.
PLACE = "rig.place"
#: Names kept per table; the rest is summed under "other".
NAMES_KEPT = 40


class Profile:
    """From construction to ``launches`` or ``timeline``, one of which ends it. ``around``: takes what each placement of
    a load is to run within, or None for no more; a connector without it has no placements told."""

    def __init__(self, around: Callable[[Callable[[], AbstractContextManager] | None], None] | None) -> None:
        self._around = around
        self._cuda = torch.cuda.is_available()
        self._calls = 0
        activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if self._cuda else [])]
        self._profile = profile(activities=activities, experimental_config=_all_threads())
        if around is not None:
            around(self._range)
        self._profile.start()

    def _range(self) -> AbstractContextManager:
        self._calls += 1
        return record_function(PLACE)

    def launches(self) -> dict[str, object]:
        """{"device": "cuda"|"cpu", "launches": {name: count} in all, "placement": None without ``around``, else {
        "calls", "launches": {name: count}, "device_us": time on the GPU in microseconds, None on a CPU}}.

        A kernel belongs to a placement when it ran within the range, which the profiler mirrors onto the stream that
        its launches went to. (Launch calls do not tell: Triton's are tied to no operation and to no thread.)
        """
        events = self._ended()
        every = Counter(each.name for each in activities(events)) if self._cuda else _operations(events)
        found: dict[str, object] = {"device": "cuda" if self._cuda else "cpu", "launches": _short(every)}
        found["placement"] = self._placement(events) if self._around is not None else None
        return found

    def timeline(self) -> dict[str, Intervals]:
        """What ran on the GPU when, see timeline.py."""
        events = self._ended()
        found = activities(events)
        return rows(found, calls(found, ranges(events)))

    def _ended(self) -> list:
        if self._around is not None:
            self._around(None)
        if self._cuda:
            torch.cuda.synchronize()
        self._profile.stop()
        return list(self._profile.events())

    def _placement(self, events: Sequence) -> dict[str, object]:
        if not self._cuda:
            inside = [event for event in events if event.name == PLACE and event.device_type == DeviceType.CPU]
            names = Counter(event.name for each in inside for event in _tree(each) if _operation(event))
            return {"calls": self._calls, "launches": _short(names), "device_us": None}
        kernels = [each for call in calls(activities(events), ranges(events)) for each in call]
        names = Counter(kernel.name for kernel in kernels)
        device_us = sum(each.end_us - each.start_us for each in kernels)
        return {"calls": self._calls, "launches": _short(names), "device_us": device_us}


def activities(events: Iterable) -> list[Activity]:
    """Those of the device; ranges that the profiler mirrors onto it are none."""
    return [
        _activity(event)
        for event in events
        if event.device_type == DeviceType.CUDA
        and not getattr(event, "is_user_annotation", False)
        and event.name != PLACE
    ]


def ranges(events: Iterable) -> list[Activity]:
    """Around placements, as mirrored onto the device."""
    return [_activity(event) for event in events if event.device_type == DeviceType.CUDA and event.name == PLACE]


def _activity(event) -> Activity:
    stream = (event.device_index, event.device_resource_id)
    return Activity(event.name, stream, event.time_range.start, event.time_range.end)


def _all_threads():
    """The loader is a thread of its own; torch before 2.7 or so profiles the calling thread only."""
    try:
        return torch._C._profiler._ExperimentalConfig(profile_all_threads=True)
    except TypeError:
        return None


def _tree(event) -> Iterable:
    """The event and all below it, on the host's side."""
    waiting = [event]
    while waiting:
        one = waiting.pop()
        yield one
        waiting += one.cpu_children


def _operation(event) -> bool:
    caller = event.cpu_parent
    return event.name.startswith("aten::") and not (caller and caller.name.startswith("aten::"))


def _operations(events: Iterable) -> Counter[str]:
    return Counter(event.name for event in events if event.device_type == DeviceType.CPU and _operation(event))


def _short(counts: Mapping[str, int]) -> dict[str, int]:
    """The most frequent names, cut to a readable length; the sum is kept."""
    table: Counter[str] = Counter()
    for rank, (name, count) in enumerate(sorted(counts.items(), key=lambda item: (-item[1], item[0]))):
        table[name[:120] if rank < NAMES_KEPT else "other"] += count
    return dict(table)
