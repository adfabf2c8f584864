"""One 64-bit value per page, over the bytes in logical order: equal under every layout, different for any other bytes.

On a CPU xxHash (xxh3_64) over contiguous bytes. On a GPU, on the device and without waiting for it, a sum of
(word + a_i) * m_i with odd random m_i, 32-bit words in wraparound 64-bit arithmetic: one flipped bit always changes it,
other bytes collide with a chance of about 2**-32 a page. Values of the two are never compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import torch
import xxhash

from e2e.inside.geometry import PagedLayer
from e2e.inside.placement.base import words


def name(device: torch.device) -> str:
    return "xxh3_64" if device.type == "cpu" else "mix64"


def pages(layer: PagedLayer, blocks: torch.Tensor, out: torch.Tensor | None = None) -> torch.Tensor:
    """[2, H, blocks, N, D] as integers of the cache's width: a contiguous copy, into ``out`` if that is given (on the
    same device). ``blocks``: int64, on the layer's device."""
    return torch.index_select(words(layer.logical).permute(1, 3, 0, 2, 4), 2, blocks, out=out)


def gathered(layers: Sequence[PagedLayer], blocks: torch.Tensor, out: torch.Tensor | None = None) -> torch.Tensor:
    """``pages`` of layers of one shape: [L, 2, H, blocks, N, D], so that they are hashed in as few launches as one."""
    if out is None:
        one = pages(layers[0], blocks[:0])
        shape = (len(layers), *one.shape[:2], len(blocks), *one.shape[3:])
        out = torch.empty(shape, dtype=one.dtype, device=one.device)
    for layer, into in zip(layers, out, strict=True):
        pages(layer, blocks, into)
    return out


def digests(data: torch.Tensor, *, keep: int) -> torch.Tensor:
    """int64 (the bits of an unsigned value) of shape ``data.shape[:keep]``, each over the trailing axes."""
    data = data.contiguous()
    shape = data.shape[:keep]
    rows = data.reshape(shape.numel(), -1)
    return (_xxh3(rows) if data.device.type == "cpu" else _mix(rows)).view(shape)


def _xxh3(rows: torch.Tensor) -> torch.Tensor:
    size = rows.shape[1] * rows.element_size()
    data = memoryview(rows.view(torch.uint8).numpy().reshape(-1))
    one = xxhash.xxh3_64_intdigest
    values = np.fromiter((one(data[i : i + size]) for i in range(0, len(data), size)), np.uint64, len(rows))
    return torch.from_numpy(values.view(np.int64))


def _mix(rows: torch.Tensor) -> torch.Tensor:
    data = rows.view(torch.uint8)
    data = data.view(torch.int32) if data.shape[1] % 4 == 0 else data
    added, factors = _coefficients(data.shape[1], rows.device)
    return ((data.to(torch.int64) + added) * factors).sum(1)


@lru_cache(maxsize=8)
def _coefficients(count: int, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0x6D617275)
    drawn = torch.randint(-(1 << 63), (1 << 63) - 1, (2, count), generator=generator)
    return drawn[0].to(device), (drawn[1] | 1).to(device)
