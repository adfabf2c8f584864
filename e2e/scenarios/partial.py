"""What is stored is only the beginning: of another prompt, of a longer one, or of what is asked for now."""

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
    Step,
    Text,
)
from e2e.scenarios.arms import BASELINE, CONNECTOR, forgotten
from e2e.scenarios.sized import Scenario, Sized

#: Texts by index. ``SPLICED``: the beginning of ``OTHER`` and the body of ``WHOLE``, which was stored behind another
#: beginning.
WHOLE, OTHER, SUFFIX, EXTENSION, ROLLBACK, SPLICED = range(6)
#: Text -> legs of it that something stored begins with.
KNOWN = {SUFFIX: 1, EXTENSION: 2, ROLLBACK: 1, SPLICED: 1}


class Partial(Scenario):
    """A prompt shares its beginning with what was stored: other end, longer, shorter, or partly in vLLM's own cache."""

    name = "partial"
    needs = ("prefixes",)

    def program(self, cell: Sized) -> Program:
        whole = cell.length(2)
        texts = (
            Text(whole),
            Text(cell.length(1)),
            Text(whole, like=WHOLE, shared=cell.leg),
            Text(cell.length(3), like=WHOLE, shared=whole),
            Text(cell.length(1), like=WHOLE, shared=cell.length(1)),
            Text(whole, like=OTHER, shared=cell.leg, body=WHOLE),
        )
        plain = (("baseline", "cold"), ("baseline", "parts")) if cell.baseline else ()
        mine = ("connector", "cold")

        def send(name: str, site: Site, among: tuple[int, ...], *claims: Claims) -> Send:
            like = tuple(where for where in plain if where[0] != site.name)
            return Send(name, site.name, among, (*claims, *([Like(like)] if like else [])), at_once=cell.at_once)

        def external(name: str, *among: int) -> Send:
            hits = tuple(cell.hit(cell.length(KNOWN[text])) for text in among)
            return send(name, CONNECTOR, among, Served(True, hits), Loaded(mine))

        # what was computed behind a hit was stored, too
        stored = (cell.hit(cell.length(3)), cell.hit(whole))
        regrown = send("regrown", CONNECTOR, (EXTENSION, SPLICED), Served(True, stored), Loaded(mine))

        def apart(*steps: Step) -> tuple[Step, ...]:
            return *forgotten(), *steps

        local = tuple(cell.hit(n, local=cell.local(n), connector=False) for n in map(cell.length, KNOWN.values()))
        mixed = Served(True, (cell.hit(whole, local=cell.leg),))
        split = (Happened("local", cell.leg), Happened("external"))
        computed = (Computed(plain[0]),) if plain else ()
        first = (
            send("cold", BASELINE, (WHOLE, OTHER), Cold()),
            send("parts", BASELINE, tuple(KNOWN), Served(False, local)),
        )
        return Program(
            (BASELINE, CONNECTOR) if plain else (CONNECTOR,),
            texts,
            (
                *(first if plain else ()),
                send("cold", CONNECTOR, (WHOLE, OTHER), Cold(), *computed),
                *apart(external("suffix", SUFFIX, SPLICED)),
                *apart(external("extension", EXTENSION)),
                *apart(external("rollback", ROLLBACK), send("mixed", CONNECTOR, (WHOLE,), mixed, *split, Loaded(mine))),
                *apart(regrown),
            ),
            self.name,
        )
