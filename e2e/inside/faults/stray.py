"""Faults that damage others: the load itself is right, and what was loaded or computed before it is not any more."""

from __future__ import annotations

from collections.abc import Sequence

from e2e.inside.faults.base import Fault, Scene
from e2e.inside.geometry import PagedLayer
from e2e.inside.placement.base import words


class StrayWrite(Fault):
    """A load also writes its last block over the first one of the request that was loaded before: class B, a block
    table of somebody else."""

    name = "stray_write"

    def after_load(self, layers: Sequence[PagedLayer], mine: list[int], before: list[int], scene: Scene) -> None:
        struck = self.struck([block for block in before if block not in mine])
        if struck is None:
            return
        scene.fired()
        for number, layer in enumerate(layers):
            self.spoil(layer, number, struck, mine[-1], scene)

    def struck(self, others: list[int]) -> int | None:
        return others[0] if others else None

    def spoil(self, layer: PagedLayer, number: int, struck: int, source: int, scene: Scene) -> None:
        layer.logical[struck] = layer.logical[source]


class StrayTail(StrayWrite):
    """A load also writes its last block over the last whole one of the request that was loaded before: class B, a copy
    that starts one entry too early in a list of blocks."""

    name = "stray_tail"

    def struck(self, others: list[int]) -> int | None:
        return others[-1] if others else None


class StrayBit(StrayWrite):
    """A load also flips one bit of one token, in one layer, of the request that was loaded before."""

    name = "stray_bit"

    def struck(self, others: list[int]) -> int | None:
        return others[len(others) // 2] if others else None

    def spoil(self, layer: PagedLayer, number: int, struck: int, source: int, scene: Scene) -> None:
        if number == scene.middle:
            words(layer.logical)[struck, 1, 0, 0, 0] ^= 1 << (8 * layer.dtype.itemsize - 6)


class StoreStrays(Fault):
    """A store zeroes the first block of the request that was stored before: class B, a buffer that is cleared by the
    block number of its former owner."""

    name = "store_strays"

    def __init__(self) -> None:
        self._stored: list[int] = []

    def after_store(self, layer: PagedLayer, number: int, blocks: Sequence[int], scene: Scene) -> None:
        if number:
            return
        before, self._stored = [block for block in self._stored if block not in blocks], list(blocks)
        if before and bool(words(layer.logical[before[0]]).any()):
            scene.fired()
            words(layer.logical)[before[0]] = 0
