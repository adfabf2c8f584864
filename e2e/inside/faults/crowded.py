"""Faults that need company: several loads in one step, or a request that lost its blocks to others."""

from __future__ import annotations

from collections.abc import Sequence

from e2e.inside.faults.base import Fault, Scene


class LoadsExchanged(Fault):
    """The first two loads of a step go into each other's blocks: class A, one slot mapping for a whole batch."""

    name = "loads_exchanged"

    def into(self, tables: list[list[int]], former: Sequence[list[int] | None], scene: Scene) -> list[list[int]]:
        if len(tables) < 2:
            return tables
        scene.fired()
        one, other, *rest = tables
        return [_over(one, other), _over(other, one), *rest]


class FormerBlocks(Fault):
    """A request that was preempted loads into the blocks that it had before: class B, a block table that nobody renewed
    when it was resumed. They are others' by now."""

    name = "former_blocks"

    def into(self, tables: list[list[int]], former: Sequence[list[int] | None], scene: Scene) -> list[list[int]]:
        found = [old and _over(now, old) for now, old in zip(tables, former, strict=True)]
        if any(table and table != now for table, now in zip(found, tables, strict=True)):
            scene.fired()
        return [table or now for table, now in zip(found, tables, strict=True)]


def _over(mine: list[int], other: list[int]) -> list[int]:
    """``mine``, as far as it goes with the blocks of ``other``."""
    return [*other[: len(mine)], *mine[len(other) :]]
