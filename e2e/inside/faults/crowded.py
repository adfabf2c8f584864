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


class LoadsDropped(Fault):
    """Of the loads of a step only the first is done, and all are reported good: class C, one completion for a batch."""

    name = "loads_dropped"

    def into(self, tables: list[list[int]], former: Sequence[list[int] | None], scene: Scene) -> list[list[int]]:
        if len(tables) < 2:
            return tables
        scene.fired()
        return [tables[0], *map(_nowhere, tables[1:])]


class ResumedNotLoaded(Fault):
    """A request that was preempted is taken for loaded when it comes back: class B, a mark that nobody took away. Its
    new blocks hold what others left there."""

    name = "resumed_not_loaded"

    def into(self, tables: list[list[int]], former: Sequence[list[int] | None], scene: Scene) -> list[list[int]]:
        if any(former):
            scene.fired()
        return [_nowhere(now) if old else now for now, old in zip(tables, former, strict=True)]


def _nowhere(table: list[int]) -> list[int]:
    """Negative slots are written to by no placement."""
    return [-1] * len(table)


def _over(mine: list[int], other: list[int]) -> list[int]:
    """``mine``, as far as it goes with the blocks of ``other``."""
    return [*other[: len(mine)], *mine[len(other) :]]
