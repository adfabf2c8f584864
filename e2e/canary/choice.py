"""What is probed next, by what can be had."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import permutations

from e2e.canary import stories
from e2e.canary.lengths import Lengths
from e2e.canary.memory import Memory
from e2e.canary.prober import Probe, fresh, of_old
from e2e.canary.stories import Units

#: Of so many probes of targets that have a store, one looks at the local cache, and one at so many texts at once; so
#: many tries without a hit, and a pair or a target is asked seldom: every so many turns.
LOCAL_EVERY, CROWD_EVERY, CROWDS, PATIENCE, SELDOM = 20, 10, (2, 3, 4), 8, 10


class Choice:
    """``names`` of targets. ``lengths``: as walked through. ``shared``: can two of them have one store? ``resets``: may
    the cache of a target that has no other one beside it be emptied?"""

    def __init__(
        self, names: Sequence[str], lengths: Lengths, memory: Memory, shared: Callable[[str, str], bool], *,
        resets: bool = False,
    ) -> None:  # fmt: skip
        self.names, self.lengths, self.memory, self.shared = list(names), lengths, memory, shared
        self.resets = resets
        self._turn = 0

    def next(self, now_s: float) -> Probe:
        """``now_s``: Unix time. Due objects first, then pairs in turn; a lone engine stores by its local probes."""
        self._turn += 1
        units = self.memory.units()
        tokens = self.lengths.at(self.memory.number, units)
        if (old := self.memory.due(now_s)) is not None and self._turn % 2:
            name = self.names[old.asked % len(self.names)]
            if self._promises("later", (name,)):
                return of_old("later", stories.later(name, old.tokens, units, old.asked), old)
            self.memory.passed(old)  # nobody who was ever seen to load it
        pairs = [pair for pair in permutations(self.names, 2) if self.shared(*pair) and self._promises("cross", pair)]
        if pairs and self._turn % LOCAL_EVERY:
            return self._of_pair(pairs[self._turn // 2 % len(pairs)], tokens, units)  # of both kinds of lengths each
        name = self.names[self._turn // (LOCAL_EVERY if pairs else 1) % len(self.names)]
        if self.resets and not pairs and self._turn % LOCAL_EVERY and self._promises("reset", (name,)):
            return fresh("reset", stories.reset(name, tokens, units), tokens)
        return fresh("local", stories.local(name, tokens, units), tokens)

    def _of_pair(self, pair: tuple[str, str], tokens: int, units: Units) -> Probe:
        turn, rest = divmod(self._turn, CROWD_EVERY)
        if rest == 4 and self._promises("crowd", pair):  # an even turn, since old objects have the odd ones
            program = stories.crowd(*pair, tokens, units, CROWDS[turn % len(CROWDS)])
            return fresh("crowd", program, tokens)
        return fresh("cross", stories.cross(*pair, tokens, units), tokens)

    def _promises(self, story: str, sites: tuple[str, ...]) -> bool:
        seen = self.memory.by.get((story, sites))
        return seen is None or seen.hits > 0 or seen.probes < PATIENCE or self._turn % SELDOM == 0
