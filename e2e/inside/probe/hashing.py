"""One 64-bit value per page, over the bytes in logical order: equal under every layout, different for any other bytes.

On a CPU xxHash (xxh3_64) over contiguous bytes. On a GPU a lane of mix.py, on the device and without waiting for it.
Values of the two are never compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np
import torch
import xxhash

from e2e.inside import mix, placement
from e2e.inside.geometry import PagedLayer
from e2e.inside.placement import Placement
from e2e.inside.placement.base import words


def name(device: torch.device) -> str:
    return "xxh3_64" if device.type == "cpu" else "mix64"


def pages(layer: PagedLayer, blocks: torch.Tensor, out: torch.Tensor | None = None) -> torch.Tensor:
    """[2, H, blocks, N, D] as integers of the cache's width: a contiguous copy, into ``out`` if that is given (on the
    same device). ``blocks``: int64, on the layer's device."""
    return torch.index_select(words(layer.logical).permute(1, 3, 0, 2, 4), 2, blocks, out=out)


def gathered(layers: Sequence[PagedLayer], blocks: torch.Tensor, out: torch.Tensor | None = None) -> torch.Tensor:
    """``pages`` of layers of one shape: [L, 2, H, blocks, N, D], so that they are hashed in as few launches as one."""
    one = layers[0]
    if one.device.type == "cuda" and one.token_granular and one.row_pitch is not None:
        found = _launched(layers, blocks)
        return found if out is None else out.copy_(found, non_blocking=True)
    if out is None:
        page = pages(one, blocks[:0])
        shape = (len(layers), *page.shape[:2], len(blocks), *page.shape[3:])
        out = torch.empty(shape, dtype=page.dtype, device=page.device)
    for layer, into in zip(layers, out, strict=True):
        pages(layer, blocks, into)
    return out


def _launched(layers: Sequence[PagedLayer], blocks: torch.Tensor) -> torch.Tensor:
    """The same by the placement kernel, in two launches."""
    one, size = layers[0], layers[0].block_size
    slots = (blocks[:, None] * size + torch.arange(size, device=blocks.device)).flatten()
    shape = (len(layers), 2, len(slots), one.heads, one.head_size)
    staged = _kernel(one.device).gather(layers, slots, torch.empty(shape, dtype=one.dtype, device=one.device))
    return words(staged).unflatten(2, (len(blocks), size)).permute(0, 1, 4, 2, 3, 5).contiguous()


@cache
def _kernel(device: torch.device) -> Placement:
    return placement.get("kernel", device)


def digests(data: torch.Tensor, *, keep: int) -> torch.Tensor:
    """int64 (the bits of an unsigned value) of shape ``data.shape[:keep]``, each over the trailing axes."""
    data = data.contiguous()
    shape = data.shape[:keep]
    rows = data.reshape(shape.numel(), -1)
    return (_xxh3(rows) if data.device.type == "cpu" else mix.sums(rows)[:, 0]).view(shape)


def _xxh3(rows: torch.Tensor) -> torch.Tensor:
    size = rows.shape[1] * rows.element_size()
    data = memoryview(rows.view(torch.uint8).numpy().reshape(-1))
    one = xxhash.xxh3_64_intdigest
    values = np.fromiter((one(data[i : i + size]) for i in range(0, len(data), size)), np.uint64, len(rows))
    return torch.from_numpy(values.view(np.int64))
