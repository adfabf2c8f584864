"""Programs for tests of the judge, with names that no rule knows."""

from __future__ import annotations

from e2e.base.connector import HitRule
from e2e.base.program import (
    Break,
    Cold,
    Computed,
    Empty,
    Forget,
    Happened,
    Hit,
    Like,
    Loaded,
    Mend,
    Missed,
    Program,
    Scribble,
    Send,
    Served,
    Site,
    Span,
    Start,
    Stop,
    Text,
    Together,
)
from e2e.scenarios.replay import Replay
from e2e.scenarios.sized import Sized

PLAIN = Site("bare", connector=False, store=None)
ALONE, TWICE = ("bare", "alone"), ("bare", "once more")
BOTH = (0, 1)
TEXTS = (Text(513), Text(1033))
FIRST = (
    Send("alone", "bare", BOTH, (Cold(),)),
    Send("once more", "bare", BOTH, (Served(False), Like((ALONE,)))),
)
STORED = Send("stored", "one", BOTH, (Cold(), Like((ALONE, TWICE)), Computed(ALONE)))


def served(name: str, site: str, *more, at_once: int = 1) -> Send:
    like = Like((ALONE, TWICE, STORED.where))
    return Send(name, site, BOTH, (Served(True), like, Loaded(STORED.where), *more), at_once=at_once)


#: An engine is killed and started again, then another one joins it on its store.
RESTART = Program(
    (PLAIN, Site("one"), Site("two")),
    TEXTS,
    (
        *FIRST, Start("one"), STORED, Stop("one", killed=True), Start("one"), served("warm", "one"), Start("two"),
        served("theirs", "two"), Stop("one"), Stop("two"),
    ),
    scenario="restart",
)  # fmt: skip

#: The second text has the first one's 512 tokens in front, and is served those.
PARTIAL = Program(
    (PLAIN, Site("one")),
    (Text(513), Text(1033, like=0, shared=512)),
    (
        Send("alone", "bare", BOTH, (Cold(), )),
        Send("short", "one", (0,), (Cold(), Like((ALONE,)), Computed(ALONE))),
        Forget("one"),
        Scribble("one"),
        Send(
            "long", "one", (1,),
            (Served(True, (Hit(Span(0, 0), Span(256, 512)),)), Like((ALONE,)), Loaded(("one", "short"))),
        ),
    ),
    scenario="partial",
)  # fmt: skip

#: Several at once, more than there is room for; then another salt, which nothing is stored for.
CROWD = Program(
    (PLAIN, Site("one")),
    TEXTS,
    (
        *FIRST, STORED, Forget("one"), Scribble("one"), served("hot", "one", Happened("preemptions", 2), at_once=2),
        Forget("one"), Send("salted", "one", BOTH, (Missed(), Like((ALONE, TWICE))), salt="other"),
    ),
    scenario="crowd",
)  # fmt: skip

#: A server is gone for a while, and a store is emptied.
BROKEN = Program(
    (PLAIN, Site("one")),
    TEXTS,
    (
        *FIRST, STORED, Break("server", "kill", "index"), Mend("server", "kill", "index"), Forget("one"),
        Scribble("one"), served("warm", "one"), Empty("pool"), Forget("one"),
        Send("emptied", "one", BOTH, (Missed(), Like((ALONE, TWICE)))),
    ),
    scenario="broken",
)  # fmt: skip

#: Its server is gone while it serves, and later the engine is killed in the middle of it all.
NEMESIS = Program(
    (PLAIN, Site("one")),
    TEXTS,
    (
        *FIRST, Start("one"), STORED, Forget("one"), Scribble("one"), Break("server", "kill", "index"),
        served("hurt", "one", Happened("load_failures")), Mend("server", "kill", "index"), Forget("one"),
        Scribble("one"), served("warm", "one"), Forget("one"), Scribble("one"),
        Together((served("last", "one"), Break("engine", "kill", "one"))), Stop("one", killed=True),
    ),
    scenario="nemesis",
)  # fmt: skip

#: The rerun as it is told of the embedded connector.
GROWN = Replay().program(
    Sized(lengths=(513, 1033, 1546), rule=HitRule(256), block_size=16, step=512, answer=4, digests=True)
)

STORIES = {program.scenario: program for program in (RESTART, PARTIAL, CROWD, BROKEN)} | {"grown": GROWN}
