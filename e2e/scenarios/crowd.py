"""Many at once: one step begins several loads, others come while some are answered."""

from __future__ import annotations

from itertools import cycle, islice

from e2e.base.program import Happened, Like, Program, Text
from e2e.scenarios.opening import Opening
from e2e.scenarios.sized import Scenario, Sized

REQUESTS = 8
#: Requests of the second round come within so many seconds: some steps load while others are answered.
SPREAD_S = 1.0
#: Output tokens of those that come together: the first is still answered when the next has been loaded.
BESIDE = 32


class Crowd(Scenario):
    """Several loads in one step go each to its own request, and none into one that is at work already."""

    name = "crowd"

    def program(self, cell: Sized) -> Program:
        story = Opening(cell, tuple(map(Text, islice(cycle(cell.lengths), REQUESTS))))
        # loads between steps end one by one
        at_one = (Happened("reads_in_one_step", 2),) if cell.settings.get("load", "sync") == "sync" else ()
        together = story.again("together", Happened("batch", 2), *at_one, at_once=REQUESTS, answer=BESIDE)
        spread = story.again("spread", at_once=REQUESTS, spread_s=SPREAD_S)
        looks = story.afterwards("together_afterwards"), story.afterwards("spread_afterwards")
        warm = story.again("warm", Like(story.like))
        return story.program(self.name, *together, looks[0], *spread, looks[1], *warm)
