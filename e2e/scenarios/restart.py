"""An engine is asked to stop, then killed, and the store lives on."""

from __future__ import annotations

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
    Start,
    Stop,
    Text,
)
from e2e.scenarios.arms import BASELINE
from e2e.scenarios.sized import Scenario, Sized

ONE = Site("one")


class Restart(Scenario):
    """What an engine stored that has ended, asked to or killed, is served to the engine that is started after it."""

    name = "restart"
    needs = ("survives_restart",)

    def program(self, cell: Sized) -> Program:
        texts = tuple(map(Text, cell.lengths))
        every = tuple(range(len(texts)))
        alone = Send("cold", BASELINE.name, every, (Cold(),), at_once=cell.at_once)
        first = (Cold(), Like((alone.where,)), Computed(alone.where))
        cold = Send("cold", ONE.name, every, first, at_once=cell.at_once)
        hits = Served(True, tuple(map(cell.hit, cell.lengths)))

        def after(name: str, ended: int) -> Send:
            """By an engine that ``ended`` others of this store stood before."""
            like = Like((alone.where, cold.where))
            claims = (hits, Happened("engines_ended", ended), like, Loaded(cold.where))
            return Send(name, ONE.name, every, claims, at_once=cell.at_once)

        start = Start(ONE.name)
        return Program(
            (BASELINE, ONE),
            texts,
            (
                alone,
                *(start, cold, Stop(ONE.name)),
                *(start, after("stopped", 1), Stop(ONE.name, killed=True)),
                *(start, after("killed", 2), Stop(ONE.name)),
            ),
            self.name,
        )
