"""How many planted faults are killed, by kind, and how far that number can be trusted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist

#: One-sided, of every bound that is printed.
CONFIDENCE = 0.95


@dataclass(frozen=True)
class Told:
    """What one story made of one fault, in one cell."""

    fault: str
    kind: str
    scenario: str
    killed: bool


@dataclass(frozen=True)
class Score:
    """Of the ``faults`` of one kind, however many cells each was planted in: ``gate`` were killed by the story that
    every submission is put through, ``full`` by any. A story kills a fault if it does so in each cell in which that was
    planted: what survived there or did not fire is not killed, and counts among ``faults`` all the same."""

    kind: str
    gate: int
    full: int
    faults: int


def scores(told: Iterable[Told], *, kinds: Sequence[str], gate: str) -> list[Score]:
    """One a kind that was planted, in the order of ``kinds``; others behind them. ``gate``: name of a scenario."""
    stories: dict[tuple[str, str], dict[str, bool]] = {}
    for row in told:
        story = stories.setdefault((row.kind, row.fault), {})
        story[row.scenario] = story.get(row.scenario, True) and row.killed
    found = dict.fromkeys(kind for kind, _ in stories)
    return [
        _score(kind, [story for (of, _), story in stories.items() if of == kind], gate) for kind in _in(kinds, found)
    ]


def _in(order: Sequence[str], found: Iterable[str]) -> list[str]:
    return sorted(found, key=lambda kind: order.index(kind) if kind in order else len(order))


def _score(kind: str, stories: Sequence[Mapping[str, bool]], gate: str) -> Score:
    return Score(kind, sum(s.get(gate, False) for s in stories), sum(any(s.values()) for s in stories), len(stories))


def total(parts: Iterable[Score]) -> Score:
    parts = list(parts)
    return Score("all", *(sum(getattr(part, name) for part in parts) for name in ("gate", "full", "faults")))


def at_least(killed: int, of: int) -> float:
    """Share of faults like these that is killed at least, with 95 %: the rule of three where all were, else Wilson's
    score interval. ``of`` is 1 or more."""
    if killed == of:
        return max(1 - 3 / of, 0.0)
    z = NormalDist().inv_cdf(CONFIDENCE)
    share, weight = killed / of, z * z / of
    spread = z * (share * (1 - share) / of + weight / (4 * of)) ** 0.5
    return max((share + weight / 2 - spread) / (1 + weight), 0.0)


def sentence(score: Score, *, gate: str, stories: Iterable[str]) -> str:
    """``stories``: scenarios in which anything was planted."""

    def told(killed: int) -> str:
        return (
            f"{killed} of {score.faults} ({killed / score.faults:.0%}, at least {at_least(killed, score.faults):.0%})"
        )

    if not score.faults:
        return "no fault was planted"
    if not {*stories} - {gate}:
        return f"faults killed by a named check: {told(score.gate)} by {gate}; no other story was told"
    return f"faults killed by a named check: {told(score.full)}; by {gate} alone: {told(score.gate)}"
