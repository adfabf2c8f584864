"""The four arms alone: what a run did before the rerun grew, and what its time is held against."""

from __future__ import annotations

from dataclasses import dataclass

from e2e.base.program import (
    Claims,
    Cold,
    Computed,
    Forget,
    Hit,
    Like,
    Loaded,
    Program,
    Scribble,
    Send,
    Served,
    Site,
    Step,
    Text,
    Where,
)
from e2e.scenarios.sized import Scenario, Sized

BASELINE, CONNECTOR = Site("baseline", connector=False, store=None), Site("connector")
#: What is computed before anything is loaded.
COLD, LOCAL = (CONNECTOR.name, "cold"), (CONNECTOR.name, "local")


@dataclass(frozen=True)
class FourArms:
    """``lengths``: of the texts that all arms are sent, the first ones of the program."""

    cell: Sized
    lengths: tuple[int, ...]

    @property
    def sites(self) -> tuple[Site, ...]:
        return (BASELINE, CONNECTOR) if self.cell.baseline else (CONNECTOR,)

    @property
    def plain(self) -> tuple[Where, ...]:
        return ((BASELINE.name, "cold"), (BASELINE.name, "local")) if self.cell.baseline else ()

    @property
    def every(self) -> Like:
        return Like((*self.plain, COLD, LOCAL))

    def send(self, name: str, site: Site, *claims: Claims, answer: int | None = None) -> Send:
        sent = tuple(range(len(self.lengths)))
        return Send(name, site.name, sent, claims, at_once=self.cell.at_once, answer=answer)

    def local(self, site: Site) -> tuple[Hit, ...]:
        """Of prompts that the engine has just seen."""
        hits = (self.cell.hit(n, local=self.cell.local(n), connector=site.connector) for n in self.lengths)
        return tuple(hits)

    def first(self) -> tuple[Step, ...]:
        """Before anything is loaded."""
        if not self.plain:
            return (
                self.send("cold", CONNECTOR, Cold()),
                self.send("local", CONNECTOR, Served(False, self.local(CONNECTOR)), Like((COLD,)), Loaded(COLD)),
            )
        plain = Like(self.plain)
        return (
            self.send("cold", BASELINE, Cold()),
            self.send("local", BASELINE, Served(False, self.local(BASELINE)), Like(self.plain[:1])),
            self.send("cold", CONNECTOR, Cold(), plain, Computed(self.plain[0])),
            self.send("local", CONNECTOR, Served(False, self.local(CONNECTOR)), plain, Loaded(COLD)),
        )

    def again(self, name: str) -> tuple[Step, ...]:
        """All of them from the connector."""
        hits = Served(True, tuple(map(self.cell.hit, self.lengths)))
        return *forgotten(), self.send(name, CONNECTOR, hits, self.every, Loaded(COLD))

    def steps(self) -> tuple[Step, ...]:
        return (*self.first(), *self.again("external"), *self.again("external_again"))


def forgotten(site: Site = CONNECTOR) -> tuple[Step, Step]:
    """Before a load: nothing of it lies in the engine any more, nor could lie there by chance."""
    return Forget(site.name), Scribble(site.name)


class Arms(Scenario):
    """Each prompt cold, from vLLM's own cache, then twice from the connector, and nothing else."""

    name = "arms"

    def program(self, cell: Sized) -> Program:
        arms = FourArms(cell, cell.lengths)
        return Program(arms.sites, tuple(map(Text, cell.lengths)), arms.steps(), self.name)
