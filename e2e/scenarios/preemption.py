"""More requests than the KV cache holds: some are preempted, and come back with what is stored of them."""

from __future__ import annotations

from e2e.base.program import Happened, Like, Program, Site, Text
from e2e.scenarios.opening import Opening
from e2e.scenarios.sized import Scenario, Sized

#: Requests whose prompts the KV cache just holds, and how many there are.
ROOM, REQUESTS = 3, 6
#: Blocks into which each answer grows. The first one preempts; the others take blocks of whoever was, so that they are
#: loaded anew.
GROWTH = 4


class Preemption(Scenario):
    """vLLM preempts, resumes with stored KV, and what attention reads stays what was computed alone."""

    name = "preemption"

    def program(self, cell: Sized) -> Program:
        tokens, block = cell.lengths[0], cell.block_size
        blocks = ROOM * -(-tokens // block) + ROOM  # the null block, and one less than all need for their next one
        one = Site("one", kv_tokens=blocks * block)
        story = Opening(cell, (Text(tokens),) * REQUESTS, one)
        happened = (Happened("preemptions"), Happened("resumed_loads"))
        longer = max(GROWTH * block, cell.answer)
        hot = story.again("hot", *happened, at_once=REQUESTS, answer=longer)
        return story.program(self.name, *hot, *story.again("warm", Like(story.like)))
