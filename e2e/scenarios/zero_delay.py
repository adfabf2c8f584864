"""The same prompt again at once: what it asks for is still being stored."""

from __future__ import annotations

from msgspec import structs

from e2e.base.program import Empty, Happened, Like, Program, Site, Text
from e2e.scenarios.arms import forgotten
from e2e.scenarios.opening import Opening
from e2e.scenarios.sized import Scenario, Sized

#: Seconds that the store of the prompt takes at least: a rerun begins some tenths later.
STORE_S = 1.6


class ZeroDelay(Scenario):
    """A rerun at once looks for what is under way into the store: it is served what is whole by then, or nothing."""

    name = "zero_delay"
    needs = ("slowed",)

    def program(self, cell: Sized) -> Program:
        tokens = cell.length(2)
        units = cell.hit(tokens).external.most // cell.rule.granularity
        story = Opening(cell, (Text(tokens),), Site("one", slow_s=STORE_S / units))
        hot = story.again("hot", Happened("lookups_beside_stores"), Like(story.like), may_miss=True)
        # what it found in part it went on from in other steps, and stored that: rounding, so all is stored anew
        anew = structs.replace(story.cold, name="anew", after_s=2 * STORE_S + 1)
        settled = story.again("settled", Like(story.like), after_s=STORE_S + 1)
        return story.program(self.name, *hot, *forgotten(story.one), Empty(str(story.one.store)), anew, *settled)
