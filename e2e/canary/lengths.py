"""Which length comes next: over blocks, chunks and steps, all that can remain behind whole ones is walked through."""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd

from e2e.canary.stories import Units

#: A golden step through the remainders: each new one lies far from the last few, and all come in the end.
_GOLDEN = 0.6180339887498949


@dataclass(frozen=True)
class Lengths:
    """``least``: the shortest prompt that holds nonce, secret and question. ``longest`` in tokens."""

    least: int
    longest: int

    def at(self, number: int, units: Units) -> int:
        """The ``number``-th length. Even ones have at most a block behind the last whole chunk, as ``exact`` likes it
        best; odd ones all other remainders."""
        chunk = units.chunk
        few = min(units.block, chunk)
        turn = number // 2
        of = few if number % 2 == 0 else chunk
        rest = 1 + turn * _coprime(of) % of
        most = max((self.longest - rest) // chunk, 0)
        least = -(-max(self.least - rest, 0) // chunk)
        least = max(least, 1) if most else least
        chunks = least + turn % (most - least + 1) if most > least else most
        return min(max(chunks * chunk + rest, self.least), self.longest)


def _coprime(size: int) -> int:
    step = max(round(size * _GOLDEN), 1)
    while gcd(step, size) != 1:
        step += 1
    return step


def unit(served: list[int], otherwise: int) -> int:
    """What divides all that was served, once three different lengths tell."""
    return gcd(*served) if len({*served}) >= 3 and all(served) else otherwise
