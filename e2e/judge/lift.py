"""The program of a recording that was made before there were any: four arms of one connector engine, beside the two of
one without. A copy of the rerun as it was then, kept apart from scenarios/replay.py, which will grow.

Its Sends carry no hits: ``expect.hit`` says them, here as everywhere."""

from __future__ import annotations

from collections.abc import Mapping

from e2e.base.program import (
    Claims,
    Cold,
    Computed,
    Forget,
    Like,
    Loaded,
    Program,
    Scribble,
    Send,
    Served,
    Site,
    Text,
)  # fmt: skip

BASELINE, CONNECTOR = Site("baseline", connector=False, store=None), Site("connector")


def lift(plan: Mapping[str, object]) -> Program:
    """``plan``: the data of a plan.cell that has no program. ValueError where no program comes of it."""
    texts = tuple(Text(int(length)) for length in plan["lengths"])
    at_once = int(plan["settings"].get("concurrency", 1))
    plain = (("baseline", "cold"), ("baseline", "local")) if plan["baseline"] else ()
    mine = (("connector", "cold"), ("connector", "local"))

    def send(name: str, site: Site, *claims: Claims) -> Send:
        return Send(name, site.name, tuple(range(len(texts))), claims, at_once=at_once)

    if plain:
        first = (
            send("cold", BASELINE, Cold()),
            send("local", BASELINE, Served(external=False), Like(plain[:1])),
            send("cold", CONNECTOR, Cold(), Like(plain), Computed(plain[0])),
            send("local", CONNECTOR, Served(external=False), Like(plain), Loaded(mine[0])),
        )
    else:
        first = (
            send("cold", CONNECTOR, Cold()),
            send("local", CONNECTOR, Served(external=False), Like(mine[:1]), Loaded(mine[0])),
        )
    reruns = [
        (
            Forget(CONNECTOR.name), Scribble(CONNECTOR.name),
            send(name, CONNECTOR, Served(external=True), Like((*plain, *mine)), Loaded(mine[0])),
        )
        for name in ("external", "external_again")
    ]  # fmt: skip
    sites = (BASELINE, CONNECTOR) if plain else (CONNECTOR,)
    return Program(sites, texts, (*first, *reruns[0], *reruns[1]))
