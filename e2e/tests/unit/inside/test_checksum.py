"""What a GPU hashes, and whoever proves it elsewhere: one value, whatever computes it."""

import os
import subprocess
import sys

import pytest
import torch

from e2e.inside import gpu_memory, mix
from e2e.inside.gpu_memory import OnGpu
from e2e.inside.memory import Host, Mapped
from e2e.inside.placement.base import raw
from e2e.inside.region import region

SIZES = [1, 3, 4, 8, 4 * mix.BLOCK, 4 * mix.BLOCK + 4, 12 * mix.BLOCK, 12 * mix.BLOCK + 1]


def _bytes(*shape: int) -> torch.Tensor:
    return torch.randint(0, 256, shape, dtype=torch.uint8, generator=torch.Generator().manual_seed(sum(shape)))


@pytest.mark.parametrize("size", SIZES)
def test_one_flipped_bit_or_two_swapped_words_are_another_value(size):
    row = _bytes(1, size)
    right = mix.sums(row, lanes=2)
    assert right.shape == (1, 2)
    for at in {0, size // 2, size - 1}:
        other = row.clone()
        other[0, at] ^= 64
        assert bool((mix.sums(other, lanes=2) != right).all())
    if size >= 8:
        assert not torch.equal(mix.sums(row.roll(4, dims=1), lanes=2), right)


def test_rows_and_lanes_do_not_touch_each_other():
    rows = _bytes(5, 6 * mix.BLOCK)
    alone = torch.cat([mix.sums(row[None], lanes=2) for row in rows])
    assert torch.equal(mix.sums(rows, lanes=2), alone)
    assert len(set(alone.flatten().tolist())) == 10


KERNEL = """
import torch
from e2e.inside import mix
for size in {sizes}:
    for lanes in (1, 2):
        rows = torch.randint(0, 256, (3, size), dtype=torch.uint8)
        expected = mix.sums(rows, lanes=lanes)
        summed, mix._summed = mix._summed, mix._launched
        assert torch.equal(mix.sums(rows, lanes=lanes), expected), (size, lanes)
        mix._summed = summed
"""


def test_the_kernel_sums_what_pytorch_does():
    """Triton's interpreter has to be asked for before Triton is imported."""
    pytest.importorskip("triton")
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    words = [sys.executable, "-c", KERNEL.format(sizes=SIZES)]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr


@pytest.fixture
def memory(tmp_path, monkeypatch) -> OnGpu:
    """Its checksums, without a GPU."""
    monkeypatch.setattr(OnGpu, "mark", lambda self: lambda: None)
    monkeypatch.setattr(gpu_memory, "Ring", lambda: None)
    return OnGpu(Mapped(region(f"{tmp_path}/region", 4096)), pin=False)


def test_a_gpu_proves_what_a_gpu_stored_and_what_a_host_did(memory):
    rows = [*_bytes(4, 48)]
    host, device = Host().checksums([raw(row) for row in rows])(), memory.checksums(rows)()
    assert len({*host, *device}) == 8
    assert memory.right(rows, [host[0], device[1], device[2], host[3]]) == [True] * 4
    assert memory.right(rows, [device[1], device[0], host[2], host[2]]) == [False, False, True, False]
    assert Host().right([raw(row) for row in rows], [host[0], *device[1:]]) == [True, False, False, False]


def test_neighbours_are_hashed_as_they_lie_and_strangers_too(memory):
    whole = _bytes(6, 32)
    uneven = [*whole[:2], _bytes(48), *whole[2:]]
    expected = memory.checksums([*whole])()
    assert [len(rows) for _, rows in gpu_memory.runs(uneven)] == [2, 1, 4]
    apart = gpu_memory.runs([*whole], [0, 32, 64, 100, 132, 0])
    assert [(start, len(rows)) for start, rows in apart] == [(0, 3), (100, 2), (0, 1)]
    assert memory.checksums([row.clone() for row in whole])() == expected
    assert [one for at, one in enumerate(memory.checksums(uneven)()) if at != 2] == expected
