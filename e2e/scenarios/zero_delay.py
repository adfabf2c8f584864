"""The same prompt again at once: what it asks for is still being stored."""

from __future__ import annotations

from e2e.base.program import Happened, Like, Program, Site, Text
from e2e.scenarios.opening import Opening
from e2e.scenarios.sized import Scenario, Sized

#: Seconds that the store of the prompt takes at least: a rerun begins some tenths later, on a busy machine seconds.
STORE_S = 4.0


class ZeroDelay(Scenario):
    """A rerun at once looks for what is under way into the store: it is served what is whole by then, or nothing."""

    name = "zero_delay"
    needs = ("slowed",)

    def program(self, cell: Sized) -> Program:
        tokens = cell.length(2)
        units = cell.hit(tokens).external.most // cell.rule.granularity
        story = Opening(cell, (Text(tokens),), Site("one", step=cell.fine, slow_s=STORE_S / units))
        hot = story.again("hot", Happened("lookups_beside_stores"), Like(story.like), may_miss=True)
        # it stores once more what it did not find
        settled = story.again("settled", Like(story.like), after_s=2 * STORE_S + 1)
        return story.program(self.name, *hot, *settled)
