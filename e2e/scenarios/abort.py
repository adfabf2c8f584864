"""Clients that go away while what they asked for is stored, or loaded; and the next one gets the blocks."""

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
from e2e.scenarios.arms import forgotten
from e2e.scenarios.opening import PLAIN
from e2e.scenarios.sized import Scenario, Sized

#: Seconds that the store and the load of a long text take at least, and after which the client leaves.
LONG_S, GONE_S = 2.0, 0.5
#: Texts by index: the one whose load is left, the one whose store is, and the one that gets the blocks.
LOADED, STORED, VICTIM = range(3)


class Abort(Scenario):
    """The client goes away in mid-store and in mid-load; its blocks are the next one's only when nobody writes."""

    name = "abort"
    needs = ("slowed",)

    def program(self, cell: Sized) -> Program:
        texts = (Text(cell.length(2)), Text(cell.length(1)), Text(cell.length(2)))
        units = cell.hit(cell.length(2)).external.most // cell.rule.granularity
        # two long ones have no room beside each other
        one = Site("one", settings={"load": "async"}, kv_tokens=3 * cell.leg, slow_s=LONG_S / units)
        alone = Send("alone", PLAIN.name, (LOADED, STORED, VICTIM), (Cold(),))
        first = (Like((alone.where,)), Computed(alone.where)) if cell.baseline else ()

        def send(name: str, text: int, *claims: Claims, **how: object) -> Send:
            return Send(name, one.name, (text,), claims, **how)

        def external(text: int) -> Served:
            return Served(True, (cell.hit(texts[text].tokens),))

        left = Happened("gone"), Happened("aborts")
        cold = send("cold", LOADED, Cold(), *first)
        # an answer so long that no engine has given it before it knows that nobody hears it
        left_store = *left, Happened("stores_after_end")
        storing = send("storing", STORED, Cold(), *left_store, gone_tokens=1, answer=cell.leg)
        loading = send(
            "loading", LOADED, external(LOADED), Loaded(cold.where), *left, Happened("aborted_loads"), gone_s=GONE_S,
            after_s=2 * LONG_S + 1,
        )  # fmt: skip
        next_ = send("next", VICTIM, Cold(), *first)
        whole = cell.hit(texts[VICTIM].tokens, local=cell.local(texts[VICTIM].tokens))
        local = send(
            "local", VICTIM, Served(False, (whole,)), *first[:1], Loaded(next_.where),
            after_s=LONG_S + 1,
        )  # fmt: skip
        apart = forgotten(one)
        rerun = send("again", LOADED, external(LOADED), *first[:1], Loaded(cold.where))
        stored = send("stored", STORED, external(STORED), *first[:1], Loaded(storing.where))
        steps = (cold, storing, *apart, loading, next_, local, *apart, rerun, *apart, stored)
        return Program((PLAIN, one) if first else (one,), texts, (*((alone,) if first else ()), *steps), self.name)
