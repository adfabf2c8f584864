"""Two engines use one store, in turn and at once."""

from __future__ import annotations

from e2e.base.program import (
    Claims,
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
    Step,
    Stop,
    Text,
    Together,
)
from e2e.scenarios.arms import BASELINE, forgotten
from e2e.scenarios.cross import OTHERWISE
from e2e.scenarios.sized import Scenario, Sized

BESIDE = Happened("engines_beside")


class Second(Scenario):
    """Two engines of different layouts live on one store: each is served what the other stored, also while that one
    stores and loads."""

    name = "second"
    needs = ("shared_store",)

    def program(self, cell: Sized) -> Program:
        a, b = Site("a"), Site("b", settings=elsewhere(cell))
        few = cell.lengths[:2]
        hits = Served(True, tuple(map(cell.hit, few)))
        early, late = tuple(range(len(few))), tuple(range(len(few), 2 * len(few)))
        alone = Send("cold", BASELINE.name, early + late, (Cold(),), at_once=cell.at_once)

        def send(name: str, site: Site, texts: tuple[int, ...], *claims: Claims) -> Send:
            claims = (*claims, BESIDE, Like((alone.where,)))
            return Send(name, site.name, texts, claims, at_once=cell.at_once)

        def apart(site: Site, *steps: Step) -> tuple[Step, ...]:
            return *forgotten(site), *steps

        cold = send("cold", a, early, Cold(), Computed(alone.where))
        more = send("more", a, late, Cold(), Computed(alone.where))
        there = Loaded(more.where)
        return Program(
            (BASELINE, a, b),
            (*map(Text, few), *map(Text, few)),
            (
                *(alone, Start(a.name), Start(b.name), cold),
                send("in_turn", b, early, hits, Loaded(cold.where)),
                *apart(b, Together((more, send("while_it_stores", b, early, hits, Loaded(cold.where))))),
                *apart(a),
                *apart(
                    b,
                    Together(
                        (send("at_once", a, late, hits, there), send("at_once", b, late, hits, there)),
                    ),
                ),
                *(Stop(a.name), Stop(b.name)),
            ),
            self.name,
        )


def elsewhere(cell: Sized) -> dict[str, str | int]:
    """The other layout, where the connector has layouts."""
    layout = cell.settings.get("layout")
    return {"layout": OTHERWISE["layout"](layout)} if layout else {}
