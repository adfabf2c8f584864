"""More faults of addressing and identity: other heads, slots, blocks, chunks and prompts than are meant."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from e2e.inside.faults.addressing import _OtherSlots
from e2e.inside.faults.base import Fault, Scene
from e2e.inside.faults.content import NeighbourLayer
from e2e.inside.placement.base import words


class FirstHeadEverywhere(Fault):
    """Every head gets the first one's bytes: class A, a stride of heads that is taken for none."""

    name = "first_head_everywhere"
    around_any = True

    def staged(self, staged: torch.Tensor, group: range, scene: Scene) -> torch.Tensor:
        if staged.shape[3] < 2:
            return staged
        scene.fired()
        return staged[:, :, :, :1].expand_as(staged).contiguous()


class HalvesSwapped(Fault):
    """The two halves of every key are swapped: class A, one rotary layout taken for the other."""

    name = "halves_swapped"
    around_any = True

    def staged(self, staged: torch.Tensor, group: range, scene: Scene) -> torch.Tensor:
        if staged.shape[4] < 2:
            return staged
        scene.fired()
        staged = staged.clone()
        staged[:, 0] = staged[:, 0].roll(staged.shape[4] // 2, dims=-1)
        return staged


class FirstLayerNeighbour(NeighbourLayer):
    """The first layer gets the next one's bytes: class A, an offset that forgot the first."""

    name = "first_layer_neighbour"

    def layer(self, scene: Scene) -> int:
        return 0


class LastLayerNeighbour(NeighbourLayer):
    """The last layer gets the one before it: class A, an offset that ran out of layers."""

    name = "last_layer_neighbour"

    def layer(self, scene: Scene) -> int:
        return scene.layers - 1


class OneSlotBack(_OtherSlots):
    """Every token goes to the slot of the one before it, the first one nowhere: class A, slots counted from one."""

    name = "one_slot_back"

    def slots(self, slots: torch.Tensor, scene: Scene) -> torch.Tensor:
        return torch.cat((slots.new_full((1,), -1), slots[:-1]))


class OneBlockOff(_OtherSlots):
    """Every block goes to the place of the next one, the last one nowhere: class A, a block table read one off."""

    name = "one_block_off"

    def slots(self, slots: torch.Tensor, scene: Scene) -> torch.Tensor:
        size = min(scene.block_size, len(slots))
        return torch.cat((slots[size:], slots.new_full((size,), -1)))


class BlocksReversed(_OtherSlots):
    """Blocks go to each other's places in reverse order: class A, a block table read from its end."""

    name = "blocks_reversed"

    def slots(self, slots: torch.Tensor, scene: Scene) -> torch.Tensor:
        whole = len(slots) // scene.block_size * scene.block_size
        turned = slots[:whole].view(-1, scene.block_size).flip(0).flatten()
        return torch.cat((turned, slots[whole:]))


class ChunksExchanged(Fault):
    """The first and the last chunk of a load are exchanged: class A, a list of objects in another order."""

    name = "chunks_exchanged"

    def keys(self, keys: list[str], others: Sequence[Mapping[int, str]], scene: Scene) -> list[str]:
        if len(keys) < 2:
            return keys
        scene.fired()
        return [keys[-1], *keys[1:-1], keys[0]]


class LocalPartNotSkipped(Fault):
    """Where vLLM's own cache holds the beginning, a load takes chunks from the prompt's start: class A, offset of a
    hit that is partly local."""

    name = "local_part_not_skipped"

    def keys(self, keys: list[str], others: Sequence[Mapping[int, str]], scene: Scene) -> list[str]:
        local = scene.first // scene.chunk_tokens
        if not local:
            return keys
        scene.fired()
        return [*keys[:local], *keys[: len(keys) - local]]


class StaleLastObject(Fault):
    """The last chunk is another prompt's: class B and D, a stale object under the last key only."""

    name = "stale_last_object"

    def keys(self, keys: list[str], others: Sequence[Mapping[int, str]], scene: Scene) -> list[str]:
        last = len(keys) - 1
        other = next((t[last] for t in reversed(others) if last in t and t.get(0) != keys[0]), None)
        if other is None:
            return keys
        scene.fired()
        return [*keys[:-1], other]


class LayerOfLoadBefore(Fault):
    """The middle layer is that of the prompt that was loaded before: class D, one layer's key does not know its
    prompt."""

    name = "layer_of_load_before"

    def __init__(self) -> None:
        self._before: torch.Tensor | None = None

    def staged(self, staged: torch.Tensor, group: range, scene: Scene) -> torch.Tensor:
        if scene.middle not in group:
            return staged
        mine = staged[scene.middle - group.start]
        before, self._before = self._before, mine.clone()
        if before is None:
            return staged
        tokens = min(before.shape[1], mine.shape[1])
        if torch.equal(words(before[:, :tokens]), words(mine[:, :tokens])):
            return staged
        scene.fired()
        staged = staged.clone()
        staged[scene.middle - group.start, :, :tokens] = before[:, :tokens]
        return staged
