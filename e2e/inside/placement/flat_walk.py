"""The single-layer kernel's contract, on a CPU: what it reads off the tensor, what it assumes, where it writes.

The kernel (``single_layer_kv_transfer`` of LMCache's and Maru's extension) gets one layer as a 5-D tensor and a format.
From the tensor it takes sizes and the block and K/V strides; in a page it assumes the order of the format:

    NHD: block_size = size(2), heads = size(3)    address in page = (offset * heads + head) * pitch
    HND: heads = size(2), block_size = size(3)    address in page = (head * block_size + offset) * pitch

So it must be handed the physical-order view. ``view`` says which one it gets; the wrong ones are the planted defects.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from e2e.inside.geometry import PagedLayer
from e2e.inside.placement.base import check, words


def physical_view(layer: PagedLayer) -> torch.Tensor:
    """In-page order as in memory: right for every layout."""
    return layer.physical


def token_first_view(layer: PagedLayer) -> torch.Tensor:
    """The original defect: (B,2,N,H,D) whatever the memory order. Wrong under HND, for every form."""
    return layer.logical


def registered_view(layer: PagedLayer) -> torch.Tensor:
    """The axes as vLLM registered them: wrong under NHD where they are head-first (packed, vLLM 0.26+), under HND where
    they are token-first (rank 5)."""
    axes = layer.axes
    return axes.transpose(0, 1) if layer.form == "kv_first" else axes


class FlatWalk:
    """One call per layer. Rows that would be moved outside the layer's own pages or outside the staging are dropped:
    none with a right view and slots inside the cache."""

    name = "kernel"

    def __init__(self, *, view: Callable[[PagedLayer], torch.Tensor] = physical_view) -> None:
        self.view = view

    def scatter(self, staged: torch.Tensor, layers: Sequence[PagedLayer], slots: torch.Tensor) -> int:
        check(staged, layers, slots)
        rows = words(staged.contiguous()).reshape(len(layers), -1, staged.shape[4])
        for row, layer in zip(rows, layers, strict=True):
            cache, at, source = self._walk(layer, slots, len(row))
            # where a wrong view makes two rows meet, the later one wins: numpy promises that, torch doesn't
            cache.numpy()[at.numpy()] = row.numpy()[source.numpy()]
        return len(layers)

    def gather(self, layers: Sequence[PagedLayer], slots: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
        check(out, layers, slots)
        rows = words(out.contiguous()).reshape(len(layers), -1, out.shape[4])
        for row, layer in zip(rows, layers, strict=True):
            cache, at, source = self._walk(layer, slots, len(row))
            row.numpy()[source.numpy()] = cache.numpy()[at.numpy()]
        if not out.is_contiguous():
            words(out).copy_(rows.view(out.shape))
        return out

    def _walk(self, layer: PagedLayer, slots: torch.Tensor, staged_rows: int) -> tuple[torch.Tensor, ...]:
        """The layer's memory as rows [R, D], and for each moved row its number there and in the staging."""
        if layer.device.type != "cpu":
            raise ValueError("the flat walk is a CPU reference; on a GPU the kernel is Triton's.")
        view, size, pitch = self.view(layer), layer.head_size, layer.row_pitch
        if pitch is None:
            raise ValueError(
                f"layout {layer.layout} doesn't space the rows of a page evenly, so this kernel can't walk it."
            )
        block_size, heads = view.shape[2], view.shape[3]
        if layer.head_major:
            heads, block_size = block_size, heads
        step = torch.tensor([view.stride(0), view.stride(1), pitch]) // size
        block_step, kv_step, pitch_rows = step.tolist()
        tokens = torch.nonzero(slots >= 0).squeeze(1)
        block, offset = slots[tokens] // block_size, slots[tokens] % block_size
        head = torch.arange(heads)
        if layer.head_major:
            in_page = head[None] * block_size + offset[:, None]
        else:
            in_page = offset[:, None] * heads + head[None]
        at = block[:, None] * block_step + in_page * pitch_rows
        source = tokens[:, None] * layer.heads + head[None]
        at = torch.stack((at, at + kv_step)).flatten()
        source = torch.stack((source, source + staged_rows // 2)).flatten()
        inside = _own(at, layer) & (source < staged_rows)
        first, end = layer.page_span
        memory = torch.as_strided(words(layer.registered), ((end - first) // size, size), (size, 1), first)
        return memory, at[inside], source[inside]


def _own(at: torch.Tensor, layer: PagedLayer) -> torch.Tensor:
    """Which rows lie in pages of this layer: inside its span, and not in the gap that holds other layers' pages."""
    first, end = layer.page_span
    inside = (at >= 0) & (at < (end - first) // layer.head_size)
    if layer.num_blocks > 1 and layer.logical.stride(0) > layer.page_elements:
        page, block = layer.page_elements // layer.head_size, layer.logical.stride(0) // layer.head_size
        inside &= at % block < page
    return inside
