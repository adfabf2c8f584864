"""Faults of the partial unit: what stands at the edge of a load, a chunk or a block is treated otherwise."""

from __future__ import annotations

import torch

from e2e.inside.faults.addressing import _OtherSlots
from e2e.inside.faults.base import Fault, Scene


class _NotWritten(_OtherSlots):
    """Some tokens of a load go nowhere. ``left_out`` gets their slots, and gives a mask or a slice of those."""

    def left_out(self, slots: torch.Tensor, scene: Scene) -> torch.Tensor | slice:
        raise NotImplementedError

    def slots(self, slots: torch.Tensor, scene: Scene) -> torch.Tensor:
        slots = slots.clone()
        slots[self.left_out(slots, scene)] = -1
        return slots


class LastTokenDropped(_NotWritten):
    """The last token of a load is not written: class E, an end that one side counts in and the other does not."""

    name = "last_token_dropped"

    def left_out(self, slots: torch.Tensor, scene: Scene) -> slice:
        return slice(-1, None)


class FirstTokenDropped(_NotWritten):
    """The first token of a load is not written: class E, a start that is counted from one."""

    name = "first_token_dropped"

    def left_out(self, slots: torch.Tensor, scene: Scene) -> slice:
        return slice(0, 1)


class LastBlockDropped(_NotWritten):
    """The last block of a load is not written: class E, whole blocks counted one short."""

    name = "last_block_dropped"

    def left_out(self, slots: torch.Tensor, scene: Scene) -> slice:
        return slice(-scene.block_size, None)


class BlockEndsDropped(_NotWritten):
    """The last token of every block is not written: class E, a block that is copied one token short."""

    name = "block_ends_dropped"

    def left_out(self, slots: torch.Tensor, scene: Scene) -> torch.Tensor:
        return slots % scene.block_size == scene.block_size - 1


class FirstChunkCut(_NotWritten):
    """The second half of the first chunk is not written: class E, a chunk taken for a smaller one."""

    name = "first_chunk_cut"

    def left_out(self, slots: torch.Tensor, scene: Scene) -> slice:
        end = min(scene.chunk_tokens, len(slots))
        return slice(max(end // 2, 1), end) if end > 1 else slice(0, 1)


class _LastBlock(Fault):
    """The last block of a load, as it was read. ``spoiled`` gets it and the one before it, [l, 2, N, H, D] each."""

    around_any = True

    def staged(self, staged: torch.Tensor, group: range, scene: Scene) -> torch.Tensor:
        size = scene.block_size
        if size < 2 or staged.shape[2] < 2 * size:
            return staged
        scene.fired()
        staged = staged.clone()
        last, before = staged[:, :, -size:], staged[:, :, -2 * size : -size]
        last.copy_(self.spoiled(last.clone(), before))
        return staged

    def spoiled(self, last: torch.Tensor, before: torch.Tensor) -> torch.Tensor:
        raise NotImplementedError


class TailReversed(_LastBlock):
    """The keys of the last block's tokens lie in reverse order: class E, a tail that has a way of its own."""

    name = "tail_reversed"

    def spoiled(self, last: torch.Tensor, before: torch.Tensor) -> torch.Tensor:
        last[:, 0] = last[:, 0].flip(1)
        return last


class TailRepeated(_LastBlock):
    """The last block is the one before it once more: class E, a tail that is rounded down to where it was read."""

    name = "tail_repeated"

    def spoiled(self, last: torch.Tensor, before: torch.Tensor) -> torch.Tensor:
        return before
