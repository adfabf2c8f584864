"""A fault around any connector: pages that it has loaded are read back, spoiled and written again, layer by layer."""

from __future__ import annotations

import torch

from e2e.inside.faults.base import Fault, Scene
from e2e.inside.geometry import PagedLayer


class Plant:
    """Called with the layer's number, its tensor, the request's whole blocks (int64, on the device) and its tokens."""

    def __init__(self, fault: Fault, fired: dict[str, int], *, layers: int) -> None:
        """``fired``: fault -> how often so far, kept up to date here. ``layers``: of the model."""
        self._fault, self._count, self._layers = fault, fired, layers

    def __call__(self, number: int, layer: PagedLayer, blocks: torch.Tensor, tokens: int) -> None:
        scene = Scene(self._layers, layer.block_size, layer.block_size, self._fired)
        pages = layer.logical[blocks]  # [B, 2, N, H, D], a copy
        staged = pages.transpose(0, 1).flatten(1, 2)[None]
        spoiled = self._fault.staged(staged, range(number, number + 1), scene)
        if spoiled is not staged:
            layer.logical[blocks] = spoiled[0].unflatten(1, (len(blocks), layer.block_size)).transpose(0, 1)

    def _fired(self) -> None:
        self._count[self._fault.name] = self._count.get(self._fault.name, 0) + 1
