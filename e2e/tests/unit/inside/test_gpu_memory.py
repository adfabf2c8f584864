"""A region that a GPU copies from and to, pinned or not. Without a GPU only what CUDA answers is made up."""

import tempfile
from types import SimpleNamespace

import pytest
import torch

from e2e.inside import gpu_memory
from e2e.inside.gpu_memory import OnGpu, _memcpy_2d, copied_2d, runs, strided
from e2e.inside.memory import Mapped
from e2e.inside.region import region

on_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
SIZE = 1 << 20


def test_what_cuda_says_of_a_region_that_it_can_t_pin_reaches_nobody_who_launches_later(monkeypatch):
    left = []

    def launched(*_, **__):
        if left:
            raise RuntimeError(f"CUDA error {left.pop()}")

    refusing = SimpleNamespace(cudaHostRegister=lambda *_: left.append("invalid argument") or 1)
    monkeypatch.setattr(torch.cuda, "cudart", lambda: refusing)
    monkeypatch.setattr(gpu_memory.torch, "zeros", launched)
    why = gpu_memory._pin(torch.empty(SIZE, dtype=torch.uint8))
    launched()
    assert why == "CUDA's error 1"


OBJECT = 1 << 10


def _rows(count: int) -> list[torch.Tensor]:
    return [*torch.zeros(count, OBJECT, dtype=torch.uint8).unbind()]


@pytest.mark.parametrize(
    ("starts", "found"),
    [
        ([0, 4, 8, 12], [(0, 4, 4)]),
        ([0, 1, 8, 9, 16, 17], [(0, 8, 3)]),  # two objects of each chunk are neighbours in the region
        ([0, 4, 8, 20, 32], [(0, 4, 3), (20, 12, 2)]),
        ([8, 4, 0], [(8, 0, 1), (4, 0, 1), (0, 0, 1)]),
        ([0, 1, 2, 3], [(0, 0, 1)]),
        ([0, 1, 8], [(0, 0, 1), (8, 0, 1)]),
        ([7], [(7, 0, 1)]),
    ],
)
def test_what_lies_equally_far_apart_is_copied_in_one_go(starts, found):
    rows = _rows(len(starts))
    seen = [*strided(runs(rows, [start * OBJECT for start in starts]))]
    assert [(start // OBJECT, stride // OBJECT, len(each)) for start, stride, each in seen] == found
    region = torch.arange(64 * OBJECT).to(torch.uint8)
    for start, stride, each in seen:
        for number, row in enumerate(each):
            row.copy_(region[start + number * stride :][: row.numel()])
    for start, row in zip(starts, rows, strict=True):
        assert torch.equal(row, region[start * OBJECT :][:OBJECT])


def test_buffers_that_are_no_neighbours_are_copied_one_by_one():
    rows = _rows(4)
    assert [len(each) for _, _, each in strided(runs(rows[::2], [0, 4 * OBJECT]))] == [1, 1]


def test_without_a_runtime_that_can_rows_are_copied_by_torch(monkeypatch):
    _memcpy_2d.cache_clear()
    monkeypatch.setattr(torch.version, "cuda", "0.0")
    assert not copied_2d(0, OBJECT, _rows(2)[0].view(1, -1))
    _memcpy_2d.cache_clear()


def _there_and_back(memory: OnGpu) -> bool:
    kept = torch.arange(SIZE, device="cuda").to(torch.uint8)
    memory.write([0], [kept])
    memory.mark()()
    found = torch.zeros_like(kept)
    memory.read([0], [found])
    return torch.equal(found, kept)


@on_gpu
def test_a_file_on_a_disk_can_t_be_pinned_and_serves_all_the_same(tmp_path):
    memory = OnGpu(Mapped(region(f"{tmp_path}/region", SIZE)))
    assert _there_and_back(memory)
    assert not memory.pinned, "where it can be pinned, as in /dev/shm, this test shows nothing"


@on_gpu
def test_regions_come_and_go(tmp_path_factory):
    for number in range(8):
        folder = tmp_path_factory.mktemp(f"pool{number}")
        memory = OnGpu(Mapped(region(f"{folder}/region", SIZE)))
        assert _there_and_back(memory)
        del memory


@on_gpu
@pytest.mark.parametrize("two_dimensional", [True, False])
@pytest.mark.parametrize("pin", [True, False])
def test_objects_equally_far_apart_come_back(pin, two_dimensional, monkeypatch):
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        memory = OnGpu(Mapped(region(f"{folder}/region", SIZE)), pin=pin)
        kept = torch.randint(0, 256, (SIZE // OBJECT, OBJECT), device="cuda").to(torch.uint8)
        memory.write([0], [kept.view(-1)])
        memory.mark()()
        if two_dimensional:
            assert _memcpy_2d() is not None, "else it is not what this test shows"
        else:
            monkeypatch.setattr(gpu_memory, "_memcpy_2d", lambda: None)
        found = torch.zeros(256, OBJECT, dtype=torch.uint8, device="cuda")
        memory.read([at * 3 * OBJECT for at in range(256)], found.unbind())
        assert torch.equal(found, kept[: 3 * 256 : 3])
        del memory
