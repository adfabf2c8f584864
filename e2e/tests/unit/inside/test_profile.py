"""Which kernels belong to a placement: events as torch 2.11 gave them on an H200, times in microseconds."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace

import pytest

pytest.importorskip("torch", reason="torch can't be imported here")

import torch
from torch.autograd import DeviceType
from torch.autograd.profiler_util import Interval

from e2e.inside.profile import PLACE, LaunchCounter, placed


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


def test_placements_are_counted_between_start_and_stop_only():
    def place():
        with within[-1]():
            torch.zeros(3).add_(1)

    within = [nullcontext]
    counter = LaunchCounter(lambda around: within.append(around or nullcontext))
    place()
    place()
    told = counter.stop()["placement"]
    assert told["calls"] == 2
    assert told["launches"]
    assert within[-1] is nullcontext


def test_of_a_connector_that_tells_no_placement_only_totals_are_counted():
    counter = LaunchCounter(None)
    torch.zeros(3).add_(1)
    told = counter.stop()
    assert told["placement"] is None
    assert told["launches"]


def test_without_a_range_nothing_is():
    assert placed([each for each in EVENTS if each.name != PLACE]) == []
