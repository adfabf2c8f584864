"""The rerun: each prompt cold, from vLLM's own cache, then twice from the connector."""

from __future__ import annotations

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
    Step,
    Text,
)
from e2e.scenarios.sized import Sized

BASELINE, CONNECTOR = Site("baseline", connector=False, store=None), Site("connector")


class Replay:
    """A prompt that was stored is served again, and every answer stays what an engine without the connector says."""

    name = "replay"

    def program(self, cell: Sized) -> Program:
        texts = tuple(map(Text, cell.lengths))
        plain = (("baseline", "cold"), ("baseline", "local")) if cell.baseline else ()
        mine = (("connector", "cold"), ("connector", "local"))
        external = Served(True, tuple(cell.hit(n) for n in cell.lengths))

        def send(name: str, site: Site, *claims: Claims) -> Send:
            return Send(name, site.name, tuple(range(len(texts))), claims, at_once=cell.at_once)

        def local(site: Site) -> Served:
            hits = (cell.hit(n, local=cell.local(n), connector=site.connector) for n in cell.lengths)
            return Served(False, tuple(hits))

        def again(name: str) -> tuple[Step, ...]:
            looked = send(name, CONNECTOR, external, Like((*plain, *mine)), Loaded(mine[0]))
            return Forget(CONNECTOR.name), Scribble(CONNECTOR.name), looked

        reruns = (*again("external"), *again("external_again"))
        if not plain:
            first = (
                send("cold", CONNECTOR, Cold()),
                send("local", CONNECTOR, local(CONNECTOR), Like(mine[:1]), Loaded(mine[0])),
            )
            return Program((CONNECTOR,), texts, (*first, *reruns))
        return Program(
            (BASELINE, CONNECTOR),
            texts,
            (
                send("cold", BASELINE, Cold()),
                send("local", BASELINE, local(BASELINE), Like(plain[:1])),
                send("cold", CONNECTOR, Cold(), Like(plain), Computed(plain[0])),
                send("local", CONNECTOR, local(CONNECTOR), Like(plain), Loaded(mine[0])),
                *reruns,
            ),
        )
