"""Faults of a load that did not arrive whole, and is reported good; the same loss in several places."""

from __future__ import annotations

import torch

from e2e.inside.faults.addressing import LayerNeverLoaded
from e2e.inside.faults.base import Fault, Scene
from e2e.inside.faults.timing import FailedLoadSwallowed
from e2e.inside.placement.base import words


class LastChunkVanished(FailedLoadSwallowed):
    """The last chunk vanished between lookup and load, and the load is reported good: class C."""

    name = "last_chunk_vanished"

    def strikes(self, chunk: int, chunks: int) -> bool:
        return chunk == chunks - 1


class EveryChunkVanished(FailedLoadSwallowed):
    """Nothing of a load was there any more, and it is reported good: class C, the store emptied under a live engine."""

    name = "every_chunk_vanished"

    def strikes(self, chunk: int, chunks: int) -> bool:
        return True


class FirstLayerNeverLoaded(LayerNeverLoaded):
    """The first layer is reported loaded, and is not: class C, a loop that starts at one."""

    name = "first_layer_never_loaded"

    def layer(self, scene: Scene) -> int:
        return 0


class LastLayerNeverLoaded(LayerNeverLoaded):
    """The last layer is reported loaded, and is not: class C, a loop that ends one short."""

    name = "last_layer_never_loaded"

    def layer(self, scene: Scene) -> int:
        return scene.layers - 1


class ValuesZeroed(Fault):
    """Values come back as zeros: class C, the second of two transfers never ran."""

    name = "values_zeroed"
    around_any = True

    def staged(self, staged: torch.Tensor, group: range, scene: Scene) -> torch.Tensor:
        scene.fired()
        staged = staged.clone()
        words(staged[:, 1]).zero_()
        return staged


class HalfTheLayersZeroed(Fault):
    """The second half of the layers comes back as zeros: class C, an object that was cut off and has its old name."""

    name = "half_the_layers_zeroed"
    around_any = True

    def staged(self, staged: torch.Tensor, group: range, scene: Scene) -> torch.Tensor:
        lost = [at for at, layer in enumerate(group) if layer >= (scene.layers + 1) // 2]
        if not lost:
            return staged
        scene.fired()
        staged = staged.clone()
        staged[lost] = 0
        return staged


class ShortRead(Fault):
    """A read ends early, and the rest of the buffer is what the load before left there: class C."""

    name = "short_read"

    def __init__(self) -> None:
        self._buffer: torch.Tensor | None = None

    def staged(self, staged: torch.Tensor, group: range, scene: Scene) -> torch.Tensor:
        left, self._buffer = self._buffer, staged.clone()
        if left is None or left.shape[0] != staged.shape[0]:
            return staged
        end = min(left.shape[2], staged.shape[2])
        start = end - max(end // 4, 1)
        if torch.equal(words(left[:, :, start:end]), words(staged[:, :, start:end])):
            return staged
        scene.fired()
        staged = staged.clone()
        staged[:, :, start:end] = left[:, :, start:end]
        return staged
