"""Faults of a pool that has no room left."""

from __future__ import annotations

import torch

from e2e.inside.faults.base import Fault, Put, Scene
from e2e.inside.pool import Pool


class SlotReused(Fault):
    """A slot is used again, and its old key still leads to it: class D, an entry that outlives its bytes."""

    name = "slot_reused"

    def after_put(self, pool: Pool, one: Put, before: Put | None, scene: Scene) -> str:
        if not one.why and one.evicted:
            scene.fired()
            pool.put(one.evicted[0], one.tag, one.under(one.evicted[0]))
        return one.why


class EvictedAnnounced(Fault):
    """What was evicted is still announced, and a load of it brings zeros: class C, a miss that is taken for a hit."""

    name = "evicted_announced"

    def after_put(self, pool: Pool, one: Put, before: Put | None, scene: Scene) -> str:
        if not one.why and one.evicted:
            scene.fired()
            blank = [(name, _zeros(content)) for name, content in one.under(one.evicted[0])]
            pool.put(one.evicted[0], one.tag, blank)
        return one.why


class RefusedAnnounced(Fault):
    """The pool has no room, and the object is announced as stored all the same: class C, a refusal that nobody heeds.
    Its key leads to what lay there before."""

    name = "refused_announced"

    def after_put(self, pool: Pool, one: Put, before: Put | None, scene: Scene) -> str:
        if one.why != "no_room" or before is None or not one.first:
            return one.why
        scene.fired()
        pool.forget([before.group])
        return pool.put(one.group, one.tag, before.under(one.group))


class RefusedCut(Fault):
    """An object for which there is no room is stored without its second half: class E, what fits is taken for all."""

    name = "refused_cut"

    def after_put(self, pool: Pool, one: Put, before: Put | None, scene: Scene) -> str:
        if one.why != "no_room" or before is None or not one.first:
            return one.why
        scene.fired()
        pool.forget([before.group])
        return pool.put(one.group, one.tag, [(name, _half(content)) for name, content in one.objects])


class RefusedOverwrites(Fault):
    """An object for which there is no room lands on another one, whose key stays: class A, a write past the end."""

    name = "refused_overwrites"

    def after_put(self, pool: Pool, one: Put, before: Put | None, scene: Scene) -> str:
        if one.why == "no_room" and before is not None:
            scene.fired()
            pool.forget([before.group])
            pool.put(before.group, before.tag, one.under(before.group))
        return one.why


def _zeros(content: memoryview | torch.Tensor) -> memoryview | torch.Tensor:
    return torch.zeros_like(content) if isinstance(content, torch.Tensor) else memoryview(bytearray(content.nbytes))


def _half(content: memoryview | torch.Tensor) -> memoryview | torch.Tensor:
    """Its first half, then zeros."""
    cut = _zeros(content)
    cut[: content.nbytes // 2] = content[: content.nbytes // 2]
    return cut
