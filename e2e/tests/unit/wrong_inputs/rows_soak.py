"""Seeds and times of a soak, and what a program may not break."""

import json
from dataclasses import replace

from row import Row
from rows_programs import GOOD, SEND, changed, row

SOAK = ("run", "--scenario", "soak")
TIME = "write a number with s, m or h, such as 30m"


def of(flag: str, given: str, *says: str) -> Row:
    return Row(f"{flag}: {given!r}", (*SOAK, flag, given), 2, (flag, *says))


def broken(what: str, how: str, target: str, **more: object) -> str:
    return changed("steps", to=[{"do": "break", "what": what, "how": how, "target": target, **more}, SEND])


def unknown(name: str, content: str, *says: str) -> Row:
    return replace(row(name, content), says=says)


ROWS = (
    of("--for", "soon", "'soon' is no time", TIME),
    of("--for", "", "is no time", TIME),
    of("--for", "0", "is no time", TIME),
    of("--for", "0m", "is no time", TIME),
    of("--for", "-5m", "--for"),
    of("--for", "1e9", "is no time", TIME),
    of("--for", "25h", "'25h' is no time up to a day"),
    of("--for", "3d", "'3d' is no time", TIME),
    of("--for", "1h30m", "'1h30m' is no time", TIME),
    of("--for", "nan", "'nan' is no time", TIME),
    of("--for", "inf", "'inf' is no time", TIME),
    of("--seed", "-1", "--seed"),
    of("--seed", "1.5", "'1.5' is no whole number"),
    of("--seed", "today", "'today' is no whole number"),
    of("--seed", "", "is no whole number"),
    Row("--seed: nothing after it", (*SOAK, "--seed"), 2, ("--seed",)),
    Row("--for: in a variable", ("run",), 2, ("MARU_E2E_FOR", TIME), environ={"MARU_E2E_FOR": "long"}),
    Row(
        "--seed: in a file",
        ("run", "--config", "c.toml"),
        2,
        ("seed", "whole number"),
        given=lambda folder: (folder / "c.toml").write_text('seed = "x"'),
    ),
    Row("--scenario: soaked", ("run", "--scenario", "soaked"), 2, ("'soaked' is unknown", "did you mean soak?")),
    Row(
        "a story that its connector can't tell",
        ("run", "--connector", "example", "--scenario", "broken_server"),
        2,
        ("needs a connector that states breakable",),
    ),
    unknown(
        "a word that the nemesis does not know",
        broken("server", "tickle", "index-server"),
        "nobody knows how to tickle the server index-server",
        "use kill, restart, suspend or slow.",
    ),
    unknown(
        "a thing that the nemesis does not know",
        broken("moon", "kill", "pool"),
        "nobody knows how to kill the moon pool",
        "use engine, object, server or space.",
    ),
    row("objects of no store", broken("object", "tear", "elsewhere"), "there is no store elsewhere"),
    row("space of no store", broken("space", "fill", "elsewhere"), "there is no store elsewhere"),
    row("an engine that is lent", broken("engine", "kill", "one"), "one is lent"),
    row("a blow before it begins", broken("space", "fill", "pool", after_s=-1), "comes after 0 to 600 seconds"),
    row("a blow next week", broken("space", "fill", "pool", after_s=604800), "comes after 0 to 600 seconds"),
    row("steps of no tokens", json.dumps({**GOOD, "sites": [{"name": "one", "step": 0}]}), "takes steps of no tokens"),
    row("steps as a word", json.dumps({**GOOD, "sites": [{"name": "one", "step": "short"}]}), "$.sites[0].step"),
)
