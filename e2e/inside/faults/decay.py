"""Faults of a lifetime that is too short or too long: of objects, and of blocks."""

from __future__ import annotations

from collections import Counter

import torch

from e2e.inside.faults.base import Fault, Scene
from e2e.inside.placement.base import words


class StoredUnheld(Fault):
    """Chunks are read from their blocks when four more requests have come, and nobody holds those: class B, a store
    behind the answer."""

    name = "stored_unheld"
    stores_late = 4


class BlocksKept(Fault):
    """Blocks of requests that have ended are not given back: class B, a store that never reports its end."""

    name = "blocks_kept"
    keeps_blocks = True


class _WornOut(Fault):
    """From its ``load``-th load on an object is no longer what it was: its middle layer has zeros."""

    load = 2

    def __init__(self) -> None:
        self._loads: Counter[str] = Counter()

    def found(self, key: str, kv: torch.Tensor, scene: Scene) -> torch.Tensor:
        self._loads[key] += 1
        if self._loads[key] < self.load:
            return kv
        scene.fired()
        kv = kv.clone()
        words(kv[scene.middle]).zero_()
        return kv


class WornOutAtSecondLoad(_WornOut):
    """A chunk serves one load, and the second finds other bytes: class B, freed by whoever read it first."""

    name = "worn_out_at_load_2"


class WornOutAtThirdLoad(_WornOut):
    """A chunk serves two loads, and the third finds other bytes: class B, a reference counted one short."""

    name = "worn_out_at_load_3"
    load = 3
