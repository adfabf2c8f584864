"""Prompts of several prefill steps that end on no unit and no block, of exact multiples, one more and one less."""

from __future__ import annotations

from math import ceil, lcm

from e2e.base.program import (
    Cold,
    Computed,
    Happened,
    Like,
    Loaded,
    Program,
    Send,
    Served,
    Site,
    Text,
)
from e2e.scenarios.arms import forgotten
from e2e.scenarios.sized import Scenario, Sized


class LongPrompt(Scenario):
    """Prefill in steps that end inside a unit of the connector, of prompts at the edges of its units and of blocks."""

    name = "long_prompt"

    def program(self, cell: Sized) -> Program:
        step, lengths = self.step(cell), self.lengths(cell)
        texts = tuple(map(Text, lengths))
        plain, one = Site("plain", connector=False, store=None, step=step), Site("one", step=step)
        every = tuple(range(len(texts)))

        def send(name: str, site: Site, *claims, **how) -> Send:
            return Send(name, site.name, every, claims, **how)

        local = Served(False, tuple(cell.hit(n, local=cell.local(n), connector=False) for n in lengths))
        external = Served(True, tuple(map(cell.hit, lengths)))
        chunked = Happened("prefill_steps", sum(ceil(n / step) for n in lengths))
        alone, again = send("alone", plain, Cold(), chunked), send("local", plain, local)
        like = (alone.where, again.where) if cell.baseline else ()
        computed = (Like(like), Computed(alone.where)) if like else ()
        cold = send("cold", one, Cold(), chunked, *computed)
        warm = send("warm", one, external, Loaded(cold.where), Like((*like, cold.where)))
        return Program(
            (plain, one) if like else (one,),
            texts,
            (*((alone, again) if like else ()), cold, *forgotten(one), warm),
            self.name,
        )

    def step(self, cell: Sized) -> int:
        """Tokens of a prefill step: more than one unit, and neither whole units nor whole blocks."""
        return cell.leg * 5 // 8 // cell.block_size * cell.block_size + cell.block_size // 2

    def lengths(self, cell: Sized) -> tuple[int, ...]:
        unit = lcm(cell.rule.granularity, cell.block_size)
        whole = (2 * self.step(cell) // unit + 1) * unit
        tail = cell.length(1) - cell.leg
        edges = whole - 1, whole, whole + 1, whole + tail, whole + cell.block_size
        return tuple(filter(cell.takes, edges))
