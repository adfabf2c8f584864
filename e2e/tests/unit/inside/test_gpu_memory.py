"""A region that a GPU copies from and to, pinned or not. Without a GPU only what CUDA answers is made up."""

from types import SimpleNamespace

import pytest
import torch

from e2e.inside import gpu_memory
from e2e.inside.gpu_memory import OnGpu
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
