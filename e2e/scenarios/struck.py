"""An engine is killed in the midst of a store, then of a load, and what it leaves is asked for by another one."""

from __future__ import annotations

from msgspec import structs

from e2e.base.program import (
    Break,
    Claims,
    Cold,
    Happened,
    Hit,
    Like,
    Loaded,
    Program,
    Send,
    Served,
    Site,
    Span,
    Start,
    Step,
    Stop,
    Text,
    Together,
)
from e2e.scenarios.arms import forgotten
from e2e.scenarios.opening import PLAIN
from e2e.scenarios.sized import Scenario, Sized

#: So long a store and a load take at least, that the blow falls amid them on a busy machine, too. Seconds.
MOVED_S = 3.0


class Struck(Scenario):
    """An engine is killed amid a store and amid a load: whoever comes after it is served what is whole, or nothing."""

    name = "struck"
    needs = ("survives_restart", "slowed", "breakable")

    def program(self, cell: Sized) -> Program:
        tokens = cell.length(1)
        whole = cell.hit(tokens)
        units = whole.external.most // cell.rule.granularity
        plain = structs.replace(PLAIN, step=cell.fine)
        one = Site("one", settings={"load": "async"}, step=cell.fine, slow_s=MOVED_S / units)
        alone = Send("alone", plain.name, (0,), (Cold(),))
        same = (Like((alone.where,)),)

        def send(name: str, *claims: Claims, **how: object) -> Send:
            return Send(name, one.name, (0,), (*claims, *same), **how)

        def served(name: str, hit: Hit, *claims: Claims, **how: object) -> Send:
            return send(name, Served(True, (hit,)), Loaded(alone.where), *claims, **how)

        def killed(amid: str, victim: Send) -> tuple[Step, ...]:
            blow = Break("engine", f"kill_amid_{amid}", one.name, after_s=victim.after_s)
            return Together((victim, blow)), Stop(one.name)

        start, apart = Start(one.name), forgotten(one)
        # what the warm-up stored is moved first, and is no longer than this prompt
        warm_s, stored_s = MOVED_S + 1, 2 * MOVED_S + 2
        storing = send("storing", Cold(), Happened("stores_cut_short"), after_s=warm_s)
        return Program(
            (plain, one),
            (Text(tokens),),
            (
                alone,
                start,
                *killed("store", storing),
                *(start, served("stored", Hit(whole.local, Span(0, whole.external.most))), *apart),
                *killed("load", served("loading", whole, Happened("loads_cut_short"), after_s=stored_s)),
                *(start, served("loaded", whole), *apart, served("again", whole), Stop(one.name)),
            ),
            self.name,
        )
