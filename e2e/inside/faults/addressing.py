"""Faults of addressing: the right bytes go to the wrong place, or nowhere."""

from __future__ import annotations

from dataclasses import replace

import torch

from e2e.inside.faults.base import Fault, Placing, Scene
from e2e.inside.geometry import PagedLayer
from e2e.inside.placement.base import words
from e2e.inside.placement.flat_walk import FlatWalk, physical_view, registered_view, token_first_view


class _WrongView(Fault):
    """A kernel that gets another view than the physical-order one reads block size and heads in the wrong order."""

    view = staticmethod(registered_view)

    def place(self, one: Placing, scene: Scene) -> int:
        first = one.layers[0]
        # layers that are placed together go by the multi-layer kernel, which is told its geometry and reads no shape
        alike = self.view(first).shape == physical_view(first).shape
        if one.placement.name == "index" or len(one.group) > 1 or alike:
            return one.scatter()
        scene.fired()
        if first.device.type == "cpu":
            return replace(one, placement=FlatWalk(view=self.view)).scatter()
        walk = _AddressesOnly(view=self.view)
        for row, layer in zip(one.staged, one.layers, strict=True):
            walk.scatter_on_device(row, layer, one.slots)
        return len(one.layers)


class _AddressesOnly(FlatWalk):
    """The flat walk's addresses, computed on a CPU tensor of the same form that is never touched, used on the GPU."""

    def scatter_on_device(self, row: torch.Tensor, layer: PagedLayer, slots: torch.Tensor) -> None:
        double = _untouched_double(layer)
        rows = words(row.contiguous()).reshape(-1, row.shape[-1])
        _, at, source = self._walk(double, slots.cpu(), len(rows))
        first, end = layer.page_span
        size = layer.head_size
        memory = torch.as_strided(words(layer.registered), ((end - first) // size, size), (size, 1), first)
        memory[at.to(memory.device)] = rows[source.to(rows.device)]


def _untouched_double(layer: PagedLayer) -> PagedLayer:
    tensor = layer.registered
    double = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype)
    if layer.form == "packed":
        return PagedLayer.packed(double)
    return PagedLayer.split(double, kv_first=layer.form == "kv_first")


class PhysicalViewOmitted(_WrongView):
    """The original bug (maru 86): the single-layer kernel gets the tensor as vLLM registered it. Strikes HND on rank-5
    tensors, NHD on packed head-first ones."""

    name = "physical_view_omitted"


class TokenFirstView(_WrongView):
    """The same bug with the token-first view of the original report on every form: strikes HND."""

    name = "token_first_view"
    view = staticmethod(token_first_view)


class AxesSwappedIndex(Fault):
    """Index placement takes a page for [heads, tokens]: class A, head count and page size swapped."""

    name = "axes_swapped_index"

    def place(self, one: Placing, scene: Scene) -> int:
        staged = one.staged
        count, _, tokens, heads, size = staged.shape
        whole = tokens // scene.block_size * scene.block_size
        if one.placement.name == "index" and heads > 1 and scene.block_size > 1 and whole:
            scene.fired()
            page = staged[:, :, :whole].reshape(count, 2, -1, heads, scene.block_size, size)
            staged = torch.cat((page.transpose(3, 4).reshape(count, 2, whole, heads, size), staged[:, :, whole:]), 2)
        return replace(one, staged=staged).scatter()


class WriteIntoCopy(Fault):
    """``reshape`` of a strided view is a copy, and so is what gets written: class A. Touched pages only are copied."""

    name = "write_into_copy"

    def place(self, one: Placing, scene: Scene) -> int:
        if one.layers[0].registered.is_contiguous():
            return one.scatter()
        scene.fired()
        kept = one.slots[one.slots >= 0]
        for row, layer in zip(one.staged, one.layers, strict=True):
            copied = words(layer.logical)[kept // scene.block_size]
            copied[torch.arange(len(kept)), :, kept % scene.block_size] = words(row)[:, one.slots >= 0].transpose(0, 1)
        return len(one.layers)


class _OtherSlots(Fault):
    def slots(self, slots: torch.Tensor, scene: Scene) -> torch.Tensor:
        raise NotImplementedError

    def place(self, one: Placing, scene: Scene) -> int:
        scene.fired()
        return replace(one, slots=self.slots(one.slots, scene)).scatter()


class OneSlotOff(_OtherSlots):
    """Every token goes to the slot of the next one, the last one nowhere: class A, slot mapping off by one."""

    name = "one_slot_off"

    def slots(self, slots: torch.Tensor, scene: Scene) -> torch.Tensor:
        return torch.cat((slots[1:], slots.new_full((1,), -1)))


class TailDropped(_OtherSlots):
    """The last half of the last chunk is not written: class E, tail rules of writer and reader differ."""

    name = "tail_dropped"

    def slots(self, slots: torch.Tensor, scene: Scene) -> torch.Tensor:
        slots = slots.clone()
        slots[-max(min(scene.chunk_tokens, len(slots)) // 2, 1) :] = -1
        return slots


class LayerNeverLoaded(Fault):
    """The middle layer is reported loaded, and is not: class C, one layer missing."""

    name = "layer_never_loaded"

    def layer(self, scene: Scene) -> int:
        return scene.middle

    def place(self, one: Placing, scene: Scene) -> int:
        if self.layer(scene) not in one.group:
            return one.scatter()
        scene.fired()
        at = self.layer(scene) - one.group.start
        parts = [(one.staged[part], one.layers[part]) for part in (slice(at), slice(at + 1, None))]
        return sum(replace(one, staged=rows, layers=into).scatter() for rows, into in parts if into)


class StepSlotsStored(Fault):
    """A chunk that several steps computed is read from where the last of them began: class A, slots of a step taken for
    those of a chunk (Maru of July 2026)."""

    name = "step_slots_stored"

    def gathered(self, slots: torch.Tensor, begun: int, generated: int, scene: Scene) -> torch.Tensor:
        if not begun or generated:
            return slots
        scene.fired()
        return slots.roll(-begun)


class AnswerOneLate(Fault):
    """KV of generated tokens is stored one position late: class A, the token that goes in taken for the one that
    comes out. Seen by the next turn alone."""

    name = "answer_one_late"

    def gathered(self, slots: torch.Tensor, begun: int, generated: int, scene: Scene) -> torch.Tensor:
        if not generated:
            return slots
        scene.fired()
        late = torch.cat((slots[:1], slots[:-1]))
        return torch.cat((slots[: len(slots) - generated], late[len(slots) - generated :]))


class StoredFromHit(Fault):
    """What a request computes behind a hit is stored from the blocks at its beginning: class A, chunks counted from
    what was computed, not from the prompt's start."""

    name = "stored_from_hit"

    def stored_from(self, chunk: int, loaded: int) -> int:
        return chunk - loaded
