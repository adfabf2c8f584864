"""Which kernels belong to a placement: events as torch 2.11 gave them on an H200, times in microseconds."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace

import pytest

pytest.importorskip("torch", reason="torch can't be imported here")

import torch
from torch.autograd import DeviceType
from torch.autograd.profiler_util import Interval

from e2e.inside.profile import PLACE, Profile, activities, ranges
from e2e.inside.timeline import calls, rows


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


def placed(events):
    return calls(activities(events), ranges(events))


def test_kernels_in_the_range_on_its_stream_are_placement():
    (call,) = placed(EVENTS)
    assert [each.name for each in call] == ["_move", "_move"]
    assert sum(each.end_us - each.start_us for each in call) == 2


def test_rows_of_a_timeline():
    """From the first activity on; of the forward is what runs on a stream with attention, copies left out."""
    events = [
        *EVENTS, event("Memcpy DtoH (Device -> Pinned)", 55950, 4), event("gemm", 55735, 20, stream=7),
        event("Memcpy HtoD (Pageable -> Device)", 55690, 2, stream=7), event("checksum", 55000, 9, stream=20),
    ]  # fmt: skip
    found = rows(activities(events), placed(events))
    assert found == {
        "to_device": [(0, 13), (745, 747), (955, 968)], "from_device": [(1005, 1009)], "placement": [(702, 850)],
        "attention": [(755, 785)], "forward": [(790, 810)],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("name", "row"),
    [
        ("void cutlass::device_kernel<flash::FlashAttnFwdSm90<", "attention"),
        ("kernel_unified_attention_2d", "attention"),
        ("void flashinfer::BatchPrefillWithPagedKVCacheKernel<", "attention"),
        ("void vllm::reshape_and_cache_flash_kernel<", "forward"),
        ("nvjet_sm90_tst_64x8_64x16_4x2_h_bz_TNT", "forward"),
    ],
)
def test_an_attention_kernel_is_known_by_its_name(name, row):
    found = rows(activities([event(name, 0, 1, stream=7)]), [])
    assert [each for each, spans in found.items() if spans] == [row]


def test_where_nothing_calls_itself_attention_all_other_kernels_are_the_forward():
    events = [each for each in EVENTS if each.name != "attention"] + [event("gemm", 55735, 20, stream=7)]
    assert rows(activities(events), placed(events))["forward"] == [(790, 810)]


def test_of_very_many_intervals_the_closest_are_joined(monkeypatch):
    monkeypatch.setattr("e2e.inside.timeline.KEPT", 3)
    events = [event("gemm", start, 1) for start in (0, 1.05, 2.2, 50, 51.3, 90)]
    assert rows(activities(events), [])["forward"] == [(0, 3.2), (50, 52.3), (90, 91)]


def test_placements_are_counted_between_start_and_stop_only():
    def place():
        with within[-1]():
            torch.zeros(3).add_(1)

    within = [nullcontext]
    counter = Profile(lambda around: within.append(around or nullcontext))
    place()
    place()
    told = counter.launches()["placement"]
    assert told["calls"] == 2
    assert told["launches"]
    assert within[-1] is nullcontext


def test_of_a_connector_that_tells_no_placement_only_totals_are_counted():
    counter = Profile(None)
    torch.zeros(3).add_(1)
    told = counter.launches()
    assert told["placement"] is None
    assert told["launches"]


@pytest.mark.skipif(torch.cuda.is_available(), reason="something is launched here")
def test_on_a_cpu_a_timeline_has_its_rows_and_nothing_in_them():
    profile = Profile(None)
    torch.zeros(3).add_(1)
    assert profile.timeline() == {
        row: [] for row in ("to_device", "from_device", "placement", "attention", "forward")
    }  # fmt: skip


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
def test_on_a_gpu_a_timeline_has_copies_placement_and_kernels_on_streams_of_their_own():
    placed = [nullcontext]
    profile = Profile(lambda around: placed.append(around or nullcontext))
    host = torch.ones(32 << 20, dtype=torch.uint8, pin_memory=True)
    matrix, side = torch.ones(2048, 2048, device="cuda"), torch.cuda.Stream()
    for _ in range(4):
        matrix @ matrix
        with torch.cuda.stream(side):
            moved = host.to("cuda", non_blocking=True)
            with placed[-1]():
                moved.add_(1)
    found = profile.timeline()
    assert (len(found["to_device"]), len(found["placement"])) == (4, 4)
    assert found["forward"]
    ends = [end for _, end in found["to_device"]]
    assert all(end <= start for end, (start, _) in zip(ends, found["placement"], strict=True))
    assert min(start for row in found.values() for start, _ in row) == 0


def test_without_a_range_nothing_is():
    assert placed([each for each in EVENTS if each.name != PLACE]) == []
