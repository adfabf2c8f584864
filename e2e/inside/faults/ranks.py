"""Faults of one tensor-parallel rank: it takes what is another one's, or goes wrong alone. With one rank they do
nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from e2e.inside.faults.base import Fault, Placing, Scene
from e2e.inside.faults.content import HeadsPermuted
from e2e.inside.faults.identity import StaleObject
from e2e.inside.faults.timing import FailedLoadSwallowed


class OtherRanksShare(Fault):
    """Every rank loads the share of the next one: class A, ranks counted otherwise by writer and reader."""

    name = "other_ranks_share"

    def share(self, rank: int, scene: Scene) -> int:
        if scene.ranks > 1:
            scene.fired()
        return (rank + 1) % scene.ranks


class FirstRanksShare(Fault):
    """Every rank loads the first one's share: class D, a key without the rank."""

    name = "first_ranks_share"

    def share(self, rank: int, scene: Scene) -> int:
        if rank:
            scene.fired()
        return 0


class LastRankNeverLoads(Fault):
    """The last rank reports its load and writes nothing: class C, one of several answers that is not awaited."""

    name = "last_rank_never_loads"

    def place(self, one: Placing, scene: Scene) -> int:
        if not scene.last_of_several:
            return one.scatter()
        scene.fired()
        return len(one.group)


class LastRankSwallows(FailedLoadSwallowed):
    """The first chunk's share of the last rank vanished, and the load is reported good: class C."""

    name = "last_rank_swallows"

    def vanished(self, chunk: int, chunks: int, scene: Scene) -> bool:
        return scene.last_of_several and super().vanished(chunk, chunks, scene)


class LastRankStale(StaleObject):
    """The last rank's share of the first chunk is another prompt's: class B and D, shares of two stores in one
    group."""

    name = "last_rank_stale"

    def keys(self, keys: list[str], others: Sequence[Mapping[int, str]], scene: Scene) -> list[str]:
        return super().keys(keys, others, scene) if scene.last_of_several else keys


class LastRankPermutes(HeadsPermuted):
    """Heads of the last rank are rotated by one: class A, a split of heads that one rank counts otherwise."""

    name = "last_rank_permutes"
    around_any = False

    def staged(self, staged: torch.Tensor, group: range, scene: Scene) -> torch.Tensor:
        return super().staged(staged, group, scene) if scene.last_of_several else staged
