"""Faults that right themselves on the engine that stored: another one is served what it can't know is wrong."""

from __future__ import annotations

import torch

from e2e.inside.faults.base import Fault, Scene


class RegionNotKept(Fault):
    """What is stored lies in the memory of this process, and the index tells everybody of it: class B, a region that
    ends with its engine under entries that do not."""

    name = "region_not_kept"

    def __init__(self) -> None:
        self._own: dict[str, torch.Tensor] = {}

    def stored(self, key: str, kv: torch.Tensor, scene: Scene) -> None:
        scene.fired()
        self._own[key] = kv.clone()
        kv.zero_()

    def found(self, key: str, kv: torch.Tensor, scene: Scene) -> torch.Tensor:
        return self._own.get(key, kv)


class LayoutNotInKey(Fault):
    """Chunks are stored page by page as they lie in the cache, under a key without its layout: class D, one engine's
    pages served to another that lays them out otherwise."""

    name = "layout_not_in_key"

    def stored(self, key: str, kv: torch.Tensor, scene: Scene) -> None:
        if scene.heads_first:
            scene.fired()
            kv.copy_(_blocks(kv, scene).transpose(3, 4).reshape(kv.shape))

    def found(self, key: str, kv: torch.Tensor, scene: Scene) -> torch.Tensor:
        if not scene.heads_first:
            return kv
        blocks = _blocks(kv, scene)
        return blocks.reshape(*blocks.shape[:3], *blocks.shape[3:5][::-1], -1).transpose(3, 4).reshape(kv.shape)


def _blocks(kv: torch.Tensor, scene: Scene) -> torch.Tensor:
    """[L, 2, T, H, D] -> [L, 2, B, N, H, D]."""
    return kv.unflatten(2, (-1, scene.block_size))


class HeadsPermutedBothWays(Fault):
    """Index placement rotates heads by one when it stores and back when it loads: class A, a store and a load that
    share one mistake, so that a rerun by the same path finds all as it was."""

    name = "heads_permuted_both_ways"

    def stored(self, key: str, kv: torch.Tensor, scene: Scene) -> None:
        if scene.placement == "index" and kv.shape[3] > 1:
            scene.fired()
            kv.copy_(kv.roll(1, dims=3))

    def found(self, key: str, kv: torch.Tensor, scene: Scene) -> torch.Tensor:
        return kv.roll(-1, dims=3) if scene.placement == "index" else kv
