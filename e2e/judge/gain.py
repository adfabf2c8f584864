"""Is a difference beyond the noise, and could it have been seen? Pure: events in, answers out.

Per branch and concurrency: pairs (a, b) and (a, a2) of one moment give log ratios of TTFT, and these their medians and
intervals (sequential.py). Beyond the noise means: the interval of b against a holds neither zero nor anything as small
as what a2 against a, which changed nothing, still shows. Within the noise says something only where an effect that
matters would have been seen: the smallest saving that is asked for, or all that the changed part takes, where that is
less.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from e2e.base.event import Event
from e2e.base.gain import (
    FASTER,
    NOTHING,
    SETTLED,
    SLOWER,
    UNSEEN,
    WITHIN,
    Answer,
    Change,
    GainJudgement,
    Launches,
    Overlap,
    Share,
)
from e2e.base.judgement import Judgement
from e2e.base.verdict import Verdict
from e2e.judge import sequential
from e2e.judge.cells import judge
from e2e.judge.shares import Shares
from e2e.judge.timeline import timelines

#: No request waits for so long; a longer time is none.
LONGEST_S = 1e6


@dataclass(frozen=True)
class Asked:
    """``looks`` at most; ``effect``: the smallest saving that matters, a share of TTFT. ``axis``: None: two
    connectors."""

    looks: int
    effect: float
    axis: str | None = None

    @classmethod
    def of(cls, plan: Mapping[str, object]) -> Asked:
        """What a plan of before there were looks asked for is one look."""
        return cls(int(plan.get("looks", 1)), float(plan.get("effect", 0.05)), plan["axis"])


def judge_gain(events: Iterable[Event]) -> GainJudgement | None:
    """None for a recording that compares nothing."""
    events = list(events)
    plans = [event.data for event in events if event.kind == "gain.plan"]
    if not plans:
        return None
    plan, cells = plans[-1], judge(events)
    launches = _all_launches(events)
    shares = Shares.of(events, plan["axis"], cells, launches)
    answers = [answer for pair in plan["pairs"] for answer in _of_branch(events, plan, pair, cells, shares)]
    return GainJudgement(
        plan, cells, tuple(answers), tuple(launches), _overlaps(events), shares.copy_speed, timelines(events)
    )


def settled(events: Sequence[Event], asked: Asked, pair: Mapping[str, str], at_once: int) -> bool:
    """Need no more pairs be drawn? ``events``: of a comparison that goes on; ``pair``: as in its plan. Its cells aren't
    judged yet, so that of the load nobody knows what it takes: what is asked for counts."""
    samples = _samples(events, pair["branch"])
    shares = Shares.of(events, asked.axis, Judgement(()), _all_launches(events))
    share = shares.share(pair, at_once, None, samples)
    return _answer(pair["branch"], at_once, None, samples, asked, share).answer in SETTLED


def _samples(events: Iterable[Event], branch: str) -> list[Mapping[str, object]]:
    return [event.data for event in events if event.kind == "gain.sample" and event["branch"] == branch]


def _of_branch(
    events: Sequence[Event], plan: Mapping, pair: Mapping, cells: Judgement, shares: Shares
) -> Iterable[Answer]:
    branch, verdicts = str(pair["branch"]), {cell.id: cell.verdict for cell in cells.cells}
    samples = _samples(events, branch)
    wrong = [cell for cell in (pair["a"], pair["b"]) if verdicts.get(cell) is not Verdict.PASS]
    for at_once in plan["concurrency"]:
        for length in (None, *sorted({int(each["length"]) for each in samples})):
            if wrong:
                what = verdicts.get(wrong[0])
                why = f"{wrong[0]} {'was not run' if what is None else 'is ' + what.value}"
                yield Answer(branch, at_once, length, NOTHING, why)
            else:
                share = shares.share(pair, at_once, length, samples)
                yield _answer(branch, at_once, length, samples, Asked.of(plan), share)


def _answer(
    branch: str, at_once: int, length: int | None, samples: Sequence[Mapping[str, object]], asked: Asked,
    share: Share | None,
) -> Answer:  # fmt: skip
    mine = [s for s in samples if s["concurrency"] == at_once and length in (None, s["length"])]
    served = [s for s in mine if _served(s)]
    left_out = len(mine) - len(served)
    sides: dict[str, dict[tuple, Mapping[str, object]]] = {"a": {}, "b": {}, "a2": {}}
    for sample in served:
        sides[str(sample["side"])][sample["round"], sample["number"], sample["length"]] = sample
    look = min(max((int(s.get("look", 1)) for s in mine), default=1), asked.looks)
    rate = sequential.spent(look, asked.looks)
    client, noise = (_change(sides["a"], sides[other], client_ttft, rate) for other in ("b", "a2"))
    server, server_noise = (_change(sides["a"], sides[other], server_ttft, rate) for other in ("b", "a2"))
    if client is None or noise is None:
        why = f"only {len(sides['a'].keys() & sides['b'].keys())} pairs were served as predicted ({left_out} were not)"
        return Answer(branch, at_once, length, NOTHING, why, left_out=left_out, look=look, looks=asked.looks)
    a_s, b_s = (statistics.median(map(client_ttft, sides[side].values())) for side in ("a", "b"))
    floor = -math.log1p(-min(_floor(noise), 0.999))
    smallest = sequential.smallest(math.log1p(client.low), math.log1p(client.high), floor, rate)
    sought = asked.effect if share is None else min(asked.effect, share.share)
    answer = verdict(client, noise, smallest <= sought)
    found = Answer(branch, at_once, length, answer, "", client, noise, server, server_noise, a_s, b_s)
    return replace(
        found, left_out=left_out, look=look, looks=asked.looks, smallest=smallest, sought=sought, share=share
    )


def verdict(change: Change, noise: Change, sharp: bool) -> str:
    """The whole interval must lie beyond the noise: with few pairs a median alone is soon off. ``sharp``: would what
    was sought have been seen?"""
    floor = _floor(noise)
    if change.high < -floor:
        return FASTER
    return SLOWER if change.low > floor else WITHIN if sharp else UNSEEN


def _floor(noise: Change) -> float:
    return max(abs(noise.low), abs(noise.high))


def _served(sample: Mapping[str, object]) -> bool:
    """From the external cache, all of it; an engine that counts nothing can't contradict."""
    times = sample["ttft_s"]
    timed = 0 < len(times) == sample["concurrency"] and all(0 < t < LONGEST_S for t in times)
    expected, found = sample["expected"], sample["external"]
    least = expected if sample.get("least") is None else sample["least"]
    return timed and found is not None and least <= found <= expected and not sample["local"]


def client_ttft(sample: Mapping[str, object]) -> float:
    """Mean over the requests that were sent at once, seconds."""
    return statistics.fmean(sample["ttft_s"])


def server_ttft(sample: Mapping[str, object]) -> float | None:
    server = sample["server"]
    whole = server["count"] == sample["concurrency"] and 0 < server["sum_s"] < LONGEST_S
    return server["sum_s"] / server["count"] if whole else None


def _change(a: Mapping[tuple, Mapping], other: Mapping[tuple, Mapping], take, error_rate: float) -> Change | None:
    pairs = [(take(a[key]), take(other[key])) for key in sorted(a.keys() & other.keys())]
    logs = [math.log(y / x) for x, y in pairs if x and y]
    if (found := sequential.interval(logs, error_rate)) is None:
        return None
    return Change(math.expm1(statistics.median(logs)), *map(math.expm1, found), len(logs))


def _overlaps(events: Iterable[Event]) -> tuple[Overlap, ...]:
    """One per cell: it is told once per length and number of requests at once."""
    sums: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    for event in events:
        if event.kind == "gain.overlap":
            told = {name: int(event[name]) for name in ("loads", "pending", "waited")}
            sums[str(event["branch"]), str(event["cell"])].update(told)
    return tuple(Overlap(branch, cell, **counts) for (branch, cell), counts in sums.items())


def _all_launches(events: Iterable[Event]) -> list[Launches]:
    return [_launches(event.data) for event in events if event.kind == "gain.launches"]


def _launches(data: Mapping[str, object]) -> Launches:
    counts, requests = data["counts"], max(int(data["requests"]), 1)
    placement = counts.get("placement") or {}
    names = {name: count / requests for name, count in (placement.get("launches") or {}).items()}
    device_us = placement.get("device_us")
    # a placement call that the profiler ties to nothing was not seen, which is not none
    seen = bool(names) or not placement.get("calls")
    return Launches(
        str(data["branch"]), str(data["side"]), int(data["length"]), str(counts["device"]),
        sum(counts["launches"].values()) / requests,
        sum(names.values()) if placement and seen else None,
        None if device_us is None or not seen else device_us / requests, names,
    )  # fmt: skip
