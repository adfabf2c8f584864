"""A pool that is smaller than what is stored: it evicts, or it refuses, and what it still serves is right."""

from __future__ import annotations

from msgspec import structs

from e2e.base.program import Happened, Like, Pool, Program, Text
from e2e.scenarios.opening import ONE, Opening
from e2e.scenarios.sized import Scenario, Sized

REQUESTS = 4


class _Small(Scenario):
    """Of four texts the pool holds two and a half: so one is served in part. What was stored last is asked for first,
    since a pool that forgets what was used least has nothing left of what is asked for in the old order."""

    name = ""
    needs = ("sized_pool",)
    evicts = False
    #: counted by the connector while it stores
    counted = ""

    def program(self, cell: Sized) -> Program:
        tokens, unit = cell.lengths[0], cell.rule.granularity
        units = max(cell.rule.external(tokens) // unit, 1)
        one = structs.replace(ONE, step=cell.fine, pool=Pool(unit * (2 * units + units // 2), self.evicts))
        story = Opening(cell, (Text(tokens),) * REQUESTS, one, (Happened(self.counted),))
        happened = (Happened(self.counted), Happened("external"))
        backwards = story.again("again", *happened, Like(story.like), texts=reversed(range(REQUESTS)), may_miss=True)
        forwards = story.again("once_more", *happened, Like(story.like), may_miss=True)
        return story.program(self.name, *backwards, *forwards)


class Eviction(_Small):
    """What was used least goes: its text misses, wholly or behind what is left of it, and gets nobody else's bytes."""

    name, evicts, counted = "eviction", True, "evictions"


class Full(_Small):
    """What is new is refused: it misses, and nobody is told that it is there."""

    name, counted = "full", "no_room"
