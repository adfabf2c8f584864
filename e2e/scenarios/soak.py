"""A seeded mix of all the others, as long as there is time for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from hashlib import sha256
from itertools import count

from e2e.base.program import Break, Cold, Missed, Program, Send, Start
from e2e.scenarios.mix import mixed
from e2e.scenarios.sized import Scenario, Sized

#: What the time is reckoned by, on two cores with the default model: seconds that an engine takes to start, a Send to
#: be looked at, something to be broken and mended; and tokens that are computed in a second.
START_S, SEND_S, BREAK_S, TOKENS_A_SECOND = 4.0, 0.4, 4.0, 1500.0


class Soak(Scenario):
    """A seeded random mix of the other stories on engines and a store that grow old, all of their events claimed.

    One after the other: what a story claims of caches and stores, another one in between would make untrue."""

    name = "soak"

    def __init__(self, stories: Sequence[Scenario]) -> None:
        self._stories = stories

    def program(self, cell: Sized) -> Program:
        """The same for the same seed and time, whatever the machine does. The first story is told in any case."""
        told: list[Program] = []
        spent_s = 0.0
        for story in drawn(self.tellable(cell), cell.seed):
            program = story.program(cell)
            spent_s += reckoned_s(program)
            if told and spent_s > cell.for_s:
                break
            told.append(program)
        return mixed(told, block_size=cell.block_size, answer=cell.answer, scenario=self.name)

    def tellable(self, cell: Sized) -> list[Scenario]:
        return [story for story in self._stories if not story.lacks(cell.abilities)]


def drawn(stories: Sequence[Scenario], seed: int) -> Iterator[Scenario]:
    """Each once in a random order, then each once more in another, for ever: a short run is no lottery. By hashes,
    which are the same in every version of Python, and a new story moves no other one."""
    for turn in count():
        yield from sorted(stories, key=lambda story: sha256(f"{seed} {turn} {story.name}".encode()).digest())


def reckoned_s(program: Program) -> float:
    """How long a story takes on the machine of the reckoning."""
    computed = sum(
        program.texts[text].tokens
        for send in program.sends
        if send.claim(Cold) or send.claim(Missed)
        for text in send.texts
    )
    counted = {kind: sum(isinstance(step, kind) for step in program.flat) for kind in (Start, Send, Break)}
    return (
        computed / TOKENS_A_SECOND + counted[Start] * START_S + counted[Send] * SEND_S + counted[Break] * BREAK_S
    )  # fmt: skip
