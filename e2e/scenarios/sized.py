"""What a scenario is, and a cell in tokens: what it has to know of one to tell its story."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import lcm
from typing import ClassVar

from e2e.base.connector import Abilities, HitRule
from e2e.base.program import Hit, Program, Span

#: The fewest tokens of a leg.
_LEG = 512


@dataclass(frozen=True, kw_only=True)
class Sized:
    """``lengths``: of prompts at which the exact oracle holds for this connector, see grid/lengths.py; ``solved``: not
    those that somebody asked for. ``step``: tokens of a prefill step, or None. ``answer``: output tokens. ``at_once``:
    requests at a time. ``baseline``: is there an engine without the connector to compare with. ``digests``: is KV
    hashed. ``takes``: may a prompt of so many tokens be sent to the connector. ``settings``: of the cell;
    ``by_request``: those axes of which an engine takes another value with each request. ``seed``,
    ``for_s``: what a story that is drawn by lot depends on, and about how many seconds it takes."""

    lengths: tuple[int, ...]
    rule: HitRule
    block_size: int
    step: int | None
    answer: int
    solved: bool = True
    at_once: int = 1
    baseline: bool = True
    digests: bool = False
    abilities: Abilities = field(default_factory=Abilities)
    takes: Callable[[int], bool] = lambda tokens: True
    settings: Mapping[str, str | int] = field(default_factory=dict)
    by_request: frozenset[str] = frozenset()
    seed: int = 0
    for_s: float = 60.0

    @property
    def leg(self) -> int:
        """Tokens after which a block, a unit of the connector and a prefill step end; enough for a prompt."""
        ends = lcm(self.unit, self.step or 1)
        return -(-_LEG // ends) * ends

    def length(self, legs: int) -> int:
        """A prompt of which either cache serves so many legs, and what is left is a few tokens."""
        return legs * self.leg + min(max(self.rule.hold_back, 1) + 4, self.block_size)

    def local(self, tokens: int) -> int:
        """Tokens that vLLM's prefix cache serves of a prompt that it has just computed: whole blocks, never the last
        token."""
        return max(tokens - 1, 0) // self.block_size * self.block_size

    def hit(self, tokens: int, *, local: int = 0, connector: bool = True) -> Hit:
        """Of a prompt that was stored whole, and of which ``local`` tokens lie in vLLM's own prefix cache."""
        least, most = (self.rule.least(tokens, local), self.rule.external(tokens, local)) if connector else (0, 0)
        return Hit(Span(local, local), Span(least, most))

    @property
    def unit(self) -> int:
        """The fewest tokens that both caches know: whole units of the connector, whole blocks."""
        return lcm(self.rule.granularity, self.block_size)

    @property
    def fine(self) -> int | None:
        """The step of an engine that may be served in part: one unit. So it goes on from there in the steps of a cold
        run, and what it computes, and stores, is that to the bit. None where steps are left alone."""
        return self.unit if self.step else None


class Scenario(ABC):
    """One story. Its docstring says in one line what it provokes. ``needs``: names of ``Abilities`` that the connector
    must have."""

    name: ClassVar[str]
    needs: ClassVar[tuple[str, ...]] = ()

    @abstractmethod
    def program(self, cell: Sized) -> Program:
        """What this cell does; pure."""

    def lacks(self, abilities: Abilities) -> list[str]:
        """Of what it needs."""
        return [need for need in self.needs if not getattr(abilities, need)]
