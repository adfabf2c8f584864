"""The store fails: its server dies, comes back, is slow or hangs, and what it holds is lost or damaged."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from msgspec import structs

from e2e.base.program import (
    Break,
    Claims,
    Cold,
    Computed,
    Happened,
    Hit,
    Like,
    Loaded,
    Mend,
    Program,
    Send,
    Served,
    Site,
    Span,
    Start,
    Step,
    Stop,
    Text,
)
from e2e.scenarios.arms import forgotten
from e2e.scenarios.opening import PLAIN
from e2e.scenarios.sized import Scenario, Sized

POOL = "pool"
#: Policy -> what its engine does with a request whose load failed.
POLICIES = {"fail": "refused", "recompute": "answered"}
#: What is looked up whole, and can't be read any more when it is loaded.
DAMAGES = ("lose", "tear", "truncate", "replace")
#: What comes of a server that does not answer.
UNHEARD = (Happened("index_errors"), Happened("store_failures"), Happened("answered"))
#: Texts by index: one that is stored all along, and one for which there is no room at first.
KEPT, NEW = range(2)


class BrokenServer(Scenario):
    """The store's server dies, comes back, is slow or hangs, and its objects are deleted, lost, torn, truncated or
    replaced before they are loaded: what can't be loaded is computed, or refused where the policy says so."""

    name = "broken_server"
    needs = ("breakable",)

    def program(self, cell: Sized) -> Program:
        told = {policy: _Told(cell, policy) for policy in POLICIES}
        strict, lenient = told.values()
        alone = [lenient.alone] if cell.baseline else []
        sites = [structs.replace(PLAIN, step=cell.fine)] if cell.baseline else []
        steps = (
            *alone,
            *strict.around(*strict.damages(), *strict.deleted(), *strict.killed(), *strict.hanging()),
            *lenient.around(*lenient.damages(), *lenient.restarted(), *lenient.slow(), *lenient.full()),
        )
        return Program((*sites, strict.site, lenient.site), lenient.texts, steps, self.name)


@dataclass(frozen=True)
class _Told:
    """What is done on the engine of one ``policy``."""

    cell: Sized
    policy: str

    @property
    def site(self) -> Site:
        return Site(self.policy, store=POOL, step=self.cell.fine, settings={"load_failure_policy": self.policy})

    @property
    def texts(self) -> tuple[Text, ...]:
        two = -(-2 * self.cell.rule.granularity // self.cell.leg)  # units: an object is replaced by another one
        return Text(self.cell.length(two)), Text(self.cell.length(1))

    @property
    def alone(self) -> Send:
        return Send("alone", PLAIN.name, (KEPT, NEW), (Cold(),))

    @cached_property
    def cold(self) -> Send:
        return self._send("cold", Cold(), *self._computed)

    @property
    def _computed(self) -> tuple[Claims, ...]:
        return (Like((self.alone.where,)), Computed(self.alone.where)) if self.cell.baseline else ()

    def _send(self, name: str, *claims: Claims, text: int = KEPT) -> Send:
        return Send(name, self.site.name, (text,), claims, salt=self.policy)

    def around(self, *steps: Step) -> tuple[Step, ...]:
        return Start(self.site.name), self.cold, *steps, Stop(self.site.name)

    def _again(self, name: str, *claims: Claims, whole: bool) -> tuple[Step, ...]:
        """``whole``: it is there, and served; else as far as it is."""
        hit = self.cell.hit(self.texts[KEPT].tokens)
        served = Served(True, (hit if whole else Hit(hit.local, Span(0, hit.external.most)),))
        like = (self.alone.where, self.cold.where) if self.cell.baseline else (self.cold.where,)
        send = self._send(name, served, Like(like), Loaded(self.cold.where), *claims)
        return *forgotten(self.site), send

    def _struck(
        self, what: str, how: str, *happened: Happened, whole: bool = False, lost: bool = False
    ) -> Iterator[Step]:
        """While something is broken, then mended. ``lost``: so is what was stored, so that it must be stored anew."""
        target = POOL if what == "object" else self.cell.abilities.breakable
        yield Break(what, how, target)
        yield from self._again(how, *happened, whole=whole)
        yield Mend(what, how, target)
        if lost:
            yield from self._again(f"after_{how}", whole=False)
        yield from self._again(f"mended_{how}", whole=True)

    def damages(self) -> Iterator[Step]:
        """Where the load fails, the policy decides."""
        for how in DAMAGES:
            happened = (Happened("load_failures"), Happened(POLICIES[self.policy]))
            yield from self._struck("object", how, *happened, lost=self.policy == "fail")

    def deleted(self) -> Iterator[Step]:
        """Nothing is looked up that could fail."""
        yield from self._struck("object", "delete", Happened("miss_chunks"), Happened("answered"))

    def killed(self) -> Iterator[Step]:
        yield from self._struck("server", "kill", *UNHEARD, lost=True)

    def restarted(self) -> Iterator[Step]:
        yield from self._struck("server", "restart", *UNHEARD, lost=True)

    def hanging(self) -> Iterator[Step]:
        yield from self._struck("server", "suspend", *UNHEARD)

    def slow(self) -> Iterator[Step]:
        yield from self._struck("server", "slow", Happened("index_late"), Happened("answered"))

    def full(self) -> Iterator[Step]:
        """What has no room is not stored, and what is there stays there."""
        yield Break("space", "fill", POOL)
        yield self._send("full", Cold(), *self._computed, Happened("no_room"), Happened("answered"), text=NEW)
        yield from self._again("kept", whole=True)
        yield Mend("space", "fill", POOL)
