"""What was probed when, and what never: the page that a canary keeps beside its recordings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timezone

from e2e.canary.memory import AGES, Memory, Seen
from e2e.canary.odds import a_time, sentences

_HEAD = ("story", "asked", "probes", "loads", "exact", "wrong", "remainders", "last load")


def page(memory: Memory, names: Mapping[str, str], now_s: float) -> str:
    """``names``: target -> its address."""
    number, every_s = memory.recent(now_s)
    wrong = sum(seen.wrong for seen in memory.by.values())
    lines = [f"{name} is {url}" for name, url in names.items()]
    lines += ["", *_table(memory, tuple(names)), ""]
    lines += [f"after {a_time(age)}: {_ages(memory, age)}" for age in AGES]
    lines += ["", *sentences(number, wrong, every_s)]
    if memory.reasons:
        lines += ["", "saw nothing: " + ", ".join(f"{why} {n}" for why, n in memory.reasons.most_common())]
    return "\n".join(lines) + "\n"


def _table(memory: Memory, names: Sequence[str]) -> list[str]:
    both = [(one, other) for one in names for other in names if one != other]
    pairs = [(story, pair) for story in ("cross", "crowd") for pair in both]
    alone = [(story, (name,)) for story in ("reset", "later", "local") for name in names]
    all_of = [*pairs, *(each for each in alone if each[0] != "reset" or each in memory.by)]  # none, where it may not
    rows = [_HEAD, *(_row(memory, story, sites) for story, sites in all_of)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def _row(memory: Memory, story: str, sites: tuple[str, ...]) -> tuple[str, ...]:
    seen = memory.by.get((story, sites), Seen())
    last = f"{datetime.fromtimestamp(seen.last_s, timezone.utc):%Y-%m-%d %H:%M:%S}Z" if seen.last_s else "never"
    rests = f"{len(seen.rests)} of {memory.given.chunk}" if story != "local" else ""
    last = "" if story == "local" else last
    counts = map(str, (seen.probes, seen.loads, seen.exact, seen.wrong))
    return (story, " -> ".join(sites), *counts, rests, last)


def _ages(memory: Memory, age: float) -> str:
    asked = sorted({sites[-1] for (_, sites), seen in memory.by.items() if age in seen.ages})
    return f"loaded by {', '.join(asked)}" if asked else "never"
