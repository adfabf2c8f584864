"""Faults of a pool that has no room left."""

from __future__ import annotations

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
