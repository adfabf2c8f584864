"""The same prompt again at once: what it asks for is still being stored."""

from __future__ import annotations

from e2e.base.program import Happened, Like, Program, Site, Text
from e2e.scenarios.opening import Opening
from e2e.scenarios.sized import Sized

#: By how much a store takes longer than it would, in seconds and by the unit: a rerun begins some tenths later.
SLOW_S = 0.4


class ZeroDelay:
    """A rerun at once looks for what is under way into the store: it is served what is whole by then, or nothing."""

    name = "zero_delay"
    needs = ("slowed",)

    def program(self, cell: Sized) -> Program:
        tokens = cell.length(2)
        story = Opening(cell, (Text(tokens),), Site("one", slow_s=SLOW_S))
        hot = story.again("hot", Happened("lookups_beside_stores"), Like(story.like), may_miss=True)
        # it stores once more what it did not find
        stored_s = 2 * SLOW_S * cell.hit(tokens).external.most / cell.rule.granularity
        settled = story.again("settled", Like(story.like), after_s=stored_s + 1)
        return story.program(self.name, *hot, *settled)
