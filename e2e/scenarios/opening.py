"""How stories of one connector begin: a plain engine answers every text, one at a time, and then the connector's own,
which stores them. So what comes later is held against what both computed alone, whatever company it has."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from msgspec import structs

from e2e.base.program import (
    Claims,
    Cold,
    Computed,
    Happened,
    Hit,
    Like,
    Loaded,
    Program,
    Send,
    Served,
    Site,
    Span,
    Step,
    Text,
    Where,
)
from e2e.scenarios.arms import forgotten
from e2e.scenarios.sized import Sized

PLAIN, ONE = Site("plain", connector=False, store=None), Site("one")


@dataclass(frozen=True)
class Opening:
    """``one``: the site with the connector. ``happened``: while it stores."""

    cell: Sized
    texts: tuple[Text, ...]
    one: Site = ONE
    happened: tuple[Happened, ...] = ()

    @property
    def alone(self) -> tuple[Send, ...]:
        """Nothing, where there is no plain engine to be had."""
        return (Send("alone", PLAIN.name, self._every, (Cold(),)),) if self.cell.baseline else ()

    @property
    def cold(self) -> Send:
        like = [claim for send in self.alone for claim in (Like((send.where,)), Computed(send.where))]
        return Send("cold", self.one.name, self._every, (Cold(), *like, *self.happened))

    @property
    def like(self) -> tuple[Where, ...]:
        return tuple(send.where for send in (*self.alone, self.cold))

    @property
    def _every(self) -> tuple[int, ...]:
        return tuple(range(len(self.texts)))

    def again(
        self, name: str, *claims: Claims, texts: Iterable[int] | None = None, may_miss: bool = False, **how: object
    ) -> tuple[Step, ...]:
        """From the connector, after vLLM's own cache was emptied and overwritten: all ``texts``, in this order, wholly
        or, where the store may have lost them, as far as it has them."""
        chosen = self._every if texts is None else tuple(texts)
        hits = [self.cell.hit(self.texts[text].tokens) for text in chosen]
        served = Served(True, tuple(_or_less(hit) if may_miss else hit for hit in hits))
        looked = Send(name, self.one.name, chosen, (served, Loaded(self.cold.where), *claims), **how)
        return *forgotten(self.one), looked

    def afterwards(self, name: str) -> Send:
        """All once more from vLLM's own cache, with the blocks that they were loaded into: where a load for somebody
        else wrote while they were answered, it shows."""
        hits = [self.cell.hit(text.tokens, local=self.cell.local(text.tokens)) for text in self.texts]
        claims = (Served(False, tuple(hits)), Loaded(self.cold.where), Like(self.like))
        return Send(name, self.one.name, self._every, claims, answer=min(2, self.cell.answer))

    def program(self, scenario: str, *then: Step) -> Program:
        plain = structs.replace(PLAIN, step=self.one.step)
        sites = (plain, self.one) if self.cell.baseline else (self.one,)
        return Program(sites, self.texts, (*self.alone, self.cold, *then), scenario)


def _or_less(hit: Hit) -> Hit:
    return Hit(hit.local, Span(0, hit.external.most))
