"""Which kernels belong to a placement: events as torch 2.11 gave them on an H200, times in microseconds."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

pytest.importorskip("torch", reason="torch can't be imported here")

from torch.autograd import DeviceType
from torch.autograd.profiler_util import Interval

from e2e.inside.profile import PLACE, placed


def event(name: str, start: float, took: float, *, stream: int = 13, device: DeviceType = DeviceType.CUDA):
    return SimpleNamespace(
        name=name, device_type=device, device_index=0, device_resource_id=stream, is_user_annotation=name == PLACE,
        time_range=Interval(start, start + took),
    )  # fmt: skip


EVENTS = [
    event("Memcpy HtoD (Pinned -> Device)", 54945, 13),
    event(PLACE, 55294, 590, stream=476, device=DeviceType.CPU),
    event("_move", 55647, 1),
    event(PLACE, 55647, 148),
    event("_move", 55794, 1),
    event("attention", 55700, 30, stream=7),  # the forward, meanwhile
    event("Memcpy HtoD (Pinned -> Device)", 55900, 13),
]


def test_kernels_in_the_range_on_its_stream_are_placement():
    assert [each.name for each in placed(EVENTS)] == ["_move", "_move"]
    assert sum(each.time_range.elapsed_us() for each in placed(EVENTS)) == 2


def test_without_a_range_nothing_is():
    assert placed([each for each in EVENTS if each.name != PLACE]) == []
