"""The answer becomes part of the next prompt, and what was computed of it while it was generated is served."""

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
    Text,
)
from e2e.scenarios.arms import BASELINE, CONNECTOR, forgotten
from e2e.scenarios.sized import Scenario, Sized

#: Generated tokens of which the KV is served; some more are generated, as that of the last one is never computed.
REACH, MORE = 12, 3
#: Tokens that are new in the next turn: an answer and a question; fewer where that would be a unit by itself, which is
#: stored before the turn is asked again.
NEW = 96
FIRST, NEXT = (0, 1), (2, 3)


class Turns(Scenario):
    """A chat goes on: the hit of its next turn reaches into the answer, whose KV was computed token by token."""

    name = "turns"
    needs = ("next_turn", "prefixes")

    def program(self, cell: Sized) -> Program:
        legs = [number + 1 for number in FIRST]
        ends = [number * cell.leg for number in legs]
        new = min(NEW, cell.unit - 1)
        source = ("baseline", "first") if cell.baseline else ("connector", "first")
        firsts = (Text(end - REACH) for end in ends)
        nexts = (
            Text(end + new, like=text, shared=end - REACH, follows=source)
            for text, end in zip(FIRST, ends, strict=True)
        )  # fmt: skip
        plain = (("baseline", "next"),) if cell.baseline else ()
        mine = ("connector", "first")

        def send(name: str, site: Site, *claims: Claims) -> Send:
            first = name == "first"
            return Send(
                name, site.name, FIRST if first else NEXT, claims, at_once=cell.at_once,
                answer=REACH + MORE if first else None,
            )  # fmt: skip

        def like(*steps: tuple[str, str]) -> tuple[Claims, ...]:
            return (Like(steps),) if steps else ()

        whole = [cell.length(number) for number in legs]
        local = Served(False, tuple(cell.hit(n, local=end) for n, end in zip(whole, ends, strict=True)))
        external = Served(True, tuple(map(cell.hit, whole)))
        # so many that none of them can have ended before its answer begins
        reached = Happened("external", sum(ends) - REACH + 1)
        before = (
            send("first", BASELINE, Cold()),
            send("next", BASELINE, Served(False, local.hits)),
        )
        computed = (Like((source,)), Computed(source)) if cell.baseline else ()
        return Program(
            (BASELINE, CONNECTOR) if cell.baseline else (CONNECTOR,),
            (*firsts, *nexts),
            (
                *(before if cell.baseline else ()),
                send("first", CONNECTOR, Cold(), *computed),
                send("local", CONNECTOR, local, *like(*plain), Loaded(mine)),
                *forgotten(),
                send("next", CONNECTOR, external, *like(*plain, ("connector", "local")), Loaded(mine), reached),
            ),
            self.name,
        )
