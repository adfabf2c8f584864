"""Page digests: the same under every layout, other for any change, and the ring that holds raw KV."""

from __future__ import annotations

import base64
import zlib

import numpy as np
import pytest
import torch

from e2e.inside import mix
from e2e.inside.geometry import PagedLayer
from e2e.inside.probe import hashing
from e2e.inside.probe.kept import Ring
from e2e.inside.probe.wire import hexed, packed

BLOCKS, HEADS, BLOCK, SIZE = 6, 3, 8, 4
ON = torch.tensor([4, 1, 5])


def layers(dtype: torch.dtype = torch.float32) -> dict[str, PagedLayer]:
    """The same logical KV in every form and order."""
    torch.manual_seed(3)
    kv = torch.randn(BLOCKS, 2, BLOCK, HEADS, SIZE).to(dtype)  # B, 2, N, H, D
    packed_kv = torch.cat((kv[:, 0], kv[:, 1]), -1)  # B, N, H, 2D
    hnd = kv.transpose(2, 3).contiguous().transpose(2, 3)
    return {
        "packed NHD": PagedLayer.packed(packed_kv.contiguous().transpose(1, 2)),
        "packed HND": PagedLayer.packed(packed_kv.transpose(1, 2).contiguous()),
        "blocks first NHD": PagedLayer.split(kv.contiguous(), kv_first=False),
        "blocks first HND": PagedLayer.split(hnd, kv_first=False),
        "K/V first": PagedLayer.split(kv.transpose(0, 1).contiguous(), kv_first=True),
    }


def values(layer: PagedLayer, hashed=hashing.digests) -> torch.Tensor:
    return hashed(hashing.pages(layer, ON), keep=3)


def mixed(data: torch.Tensor, *, keep: int) -> torch.Tensor:
    """What a GPU computes, on a CPU."""
    rows = data.contiguous().reshape(data.shape[:keep].numel(), -1)
    return mix.sums(rows)[:, 0].view(data.shape[:keep])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_kernel_gathers_the_same_pages(dtype, monkeypatch):
    kernels = pytest.importorskip("e2e.inside.placement.triton_kernel")
    monkeypatch.setattr(hashing, "_kernel", lambda device: kernels.Triton())
    for layer in layers(dtype).values():
        assert torch.equal(hashing._launched([layer, layer], ON), hashing.gathered([layer, layer], ON))


@pytest.mark.parametrize("hashed", [hashing.digests, mixed])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float8_e4m3fn])
def test_digests_do_not_depend_on_the_layout(hashed, dtype):
    found = [values(layer, hashed) for layer in layers(dtype).values()]
    assert found[0].shape == (2, HEADS, len(ON))
    assert len(found[0].unique()) == found[0].numel()
    assert all(torch.equal(found[0], other) for other in found[1:])


@pytest.mark.parametrize("hashed", [hashing.digests, mixed])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float8_e4m3fn])
def test_layers_hashed_together_have_the_values_that_each_has_alone(hashed, dtype):
    found = [*layers(dtype).values()]
    together = hashing.gathered(found, ON)
    assert torch.equal(hashed(together, keep=4), torch.stack([values(layer, hashed) for layer in found]))
    into = torch.empty_like(together)
    assert hashing.gathered(found, ON, into) is into
    assert torch.equal(into, together)


@pytest.mark.parametrize("hashed", [hashing.digests, mixed])
@pytest.mark.parametrize("bit", [0, 13, 31])
def test_one_flipped_bit_changes_one_value(hashed, bit):
    layer = layers()["packed NHD"]
    before = values(layer, hashed)
    word = layer.logical.view(torch.int32)
    word[1, 1, 5, 2, 3] ^= -(2**31) if bit == 31 else 1 << bit
    changed = (values(layer, hashed) != before).nonzero()
    assert changed.tolist() == [[1, 2, 1]]


@pytest.mark.parametrize("hashed", [hashing.digests, mixed])
def test_order_counts(hashed):
    """Two tokens swapped, all signs flipped (an even number of top bits), pages of zeros of other sizes."""
    layer = layers()["packed HND"]
    before = values(layer, hashed)
    layer.logical[4] = layer.logical[4].flip(1)
    assert (values(layer, hashed) != before)[:, :, 0].all()
    layer = layers()["packed HND"]
    layer.logical[1] *= -1
    assert (values(layer, hashed) != before)[:, :, 1].all()


def test_zero_and_wire_values_match_pages():
    layer = layers()["packed NHD"]
    layer.logical[5, 0, :, 1] = 0
    zero = hashing.digests(torch.zeros(BLOCK, SIZE), keep=0)
    found = values(layer)
    assert (found == zero).nonzero().tolist() == [[0, 1, 2]]
    read = np.frombuffer(zlib.decompress(base64.b64decode(packed(found))), "<u8").reshape(2, HEADS, 3)
    assert int(read[0, 1, 2]) == int(hexed(zero), 16)


def test_the_ring_keeps_what_was_not_overrun():
    ring = Ring(1024, pinned=False)
    shape = (32,)
    for key in range(1, 9):
        ring.take(key, shape, torch.int32).fill_(key)
    assert [bool((ring.find(key, shape, torch.int32) == key).all()) for key in range(1, 9)] == [True] * 8
    ring.take(9, (40,), torch.int32).fill_(9)
    assert [ring.find(key, shape, torch.int32) is None for key in range(1, 10)] == [True, True, *[False] * 7]
    assert bool((ring.find(3, shape, torch.int32) == 3).all())
    assert ring.take(10, (2048,), torch.uint8) is None
