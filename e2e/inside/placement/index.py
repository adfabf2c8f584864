"""What an overlapped load does without a kernel: block and offset tensors, index_put per layer.

Follows strides, so it is right for every layout. Costs one index_put per layer, and a division and a remainder per call
or per layer.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from e2e.inside.geometry import PagedLayer
from e2e.inside.placement.base import check, words


class Index:
    """``once``: block and offset tensors are made once per call instead of once per layer. ``dense``: the caller
    promises that no slot is negative; otherwise negative ones are dropped, which makes a GPU wait for the host."""

    name = "index"

    def __init__(self, *, once: bool = True, dense: bool = False) -> None:
        self.once, self.dense = once, dense

    def scatter(self, staged: torch.Tensor, layers: Sequence[PagedLayer], slots: torch.Tensor) -> int:
        first = check(staged, layers, slots)
        where = self._where(slots, first)
        for row, layer in zip(staged, layers, strict=True):
            keep, block, offset = where if self.once else self._where(slots, layer)
            row = row if keep is None else row[:, keep]
            # (T,2,H,D): the advanced indices are apart, so their axis comes first
            _indexable(layer.logical)[block, :, offset] = _indexable(row).transpose(0, 1)
        return len(layers)

    def gather(self, layers: Sequence[PagedLayer], slots: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
        first = check(out, layers, slots)
        keep, block, offset = self._where(slots, first)
        for row, layer in zip(out, layers, strict=True):
            found = _indexable(layer.logical)[block, :, offset].transpose(0, 1)
            if keep is None:
                _indexable(row).copy_(found)
            else:
                _indexable(row)[:, keep] = found
        return out

    def _where(self, slots: torch.Tensor, layer: PagedLayer) -> tuple[torch.Tensor | None, torch.Tensor, torch.Tensor]:
        keep = None
        if not self.dense:
            mask = slots >= 0
            if not bool(mask.all()):
                keep = mask.nonzero().squeeze(1)
                slots = slots[keep]
        return keep, slots // layer.block_size, slots % layer.block_size


def _indexable(tensor: torch.Tensor) -> torch.Tensor:
    """PyTorch doesn't index every 1-byte float on every device; bytes it does."""
    return words(tensor) if tensor.element_size() == 1 else tensor
