"""Is a difference beyond the noise? Pure: events in, answers out; the bootstrap's random numbers are seeded.

Per branch and concurrency: pairs (a, b) and (a, a2) of one moment give log ratios of TTFT; their medians and 95 %
intervals are bootstrapped over pairs. Beyond the noise means: the interval of b against a holds neither zero nor
anything as small as what a2 against a, which changed nothing, still shows.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np
from scipy.stats import bootstrap

from e2e.base.event import Event
from e2e.base.gain import FASTER, NOTHING, SLOWER, WITHIN, Answer, Change, GainJudgement, Launches, Overlap
from e2e.base.verdict import Verdict
from e2e.judge.cells import judge

#: Fewer pairs than this say nothing.
FEWEST_PAIRS = 5
RESAMPLES = 5000
#: No request waits for so long; a longer time is none.
LONGEST_S = 1e6
LEVEL = 0.95


def judge_gain(events: Iterable[Event]) -> GainJudgement | None:
    """None for a recording that compares nothing."""
    events = list(events)
    plans = [event.data for event in events if event.kind == "gain.plan"]
    if not plans:
        return None
    plan, cells = plans[-1], judge(events)
    verdicts = {cell.id: cell.verdict for cell in cells.cells}
    samples: dict[str, list[Mapping[str, object]]] = defaultdict(list)
    for event in events:
        if event.kind == "gain.sample":
            samples[str(event["branch"])].append(event.data)
    answers = []
    for pair in plan["pairs"]:
        branch = str(pair["branch"])
        wrong = [cell for cell in (pair["a"], pair["b"]) if verdicts.get(cell) is not Verdict.PASS]
        lengths = sorted({int(each["length"]) for each in samples[branch]})
        for at_once in plan["concurrency"]:
            for length in (None, *lengths):
                if wrong:
                    what = verdicts.get(wrong[0])
                    why = f"{wrong[0]} {'was not run' if what is None else 'is ' + what.value}"
                    answers.append(Answer(branch, at_once, length, NOTHING, why))
                else:
                    answers.append(_answer(branch, at_once, length, samples[branch]))
    launches = [_launches(event.data) for event in events if event.kind == "gain.launches"]
    return GainJudgement(plan, cells, tuple(answers), tuple(launches), _overlaps(events))


def _answer(branch: str, at_once: int, length: int | None, samples: Sequence[Mapping[str, object]]) -> Answer:
    mine = [s for s in samples if s["concurrency"] == at_once and length in (None, s["length"])]
    served = [s for s in mine if _served(s)]
    left_out = len(mine) - len(served)
    sides: dict[str, dict[tuple, Mapping[str, object]]] = {"a": {}, "b": {}, "a2": {}}
    for sample in served:
        sides[str(sample["side"])][sample["round"], sample["number"], sample["length"]] = sample
    client, noise = (_change(sides["a"], sides[other], client_ttft) for other in ("b", "a2"))
    server, server_noise = (_change(sides["a"], sides[other], server_ttft) for other in ("b", "a2"))
    if client is None or noise is None:
        why = f"only {len(sides['a'].keys() & sides['b'].keys())} pairs were served as predicted ({left_out} were not)"
        return Answer(branch, at_once, length, NOTHING, why, left_out=left_out)
    a_s, b_s = (statistics.median(map(client_ttft, sides[side].values())) for side in ("a", "b"))
    found = Answer(branch, at_once, length, verdict(client, noise), "", client, noise, server, server_noise, a_s, b_s)
    return replace(found, left_out=left_out)


def verdict(change: Change, noise: Change) -> str:
    """The whole interval must lie beyond the noise: with few pairs a median alone is soon off."""
    floor = max(abs(noise.low), abs(noise.high))
    if change.high < -floor:
        return FASTER
    return SLOWER if change.low > floor else WITHIN


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


def _change(a: Mapping[tuple, Mapping], other: Mapping[tuple, Mapping], take) -> Change | None:
    pairs = [(take(a[key]), take(other[key])) for key in sorted(a.keys() & other.keys())]
    logs = [math.log(y / x) for x, y in pairs if x and y]
    if len(logs) < FEWEST_PAIRS:
        return None
    low, high = interval(logs)
    return Change(math.expm1(statistics.median(logs)), math.expm1(low), math.expm1(high), len(logs))


def interval(values: Sequence[float]) -> tuple[float, float]:
    """95 % interval of the median, percentile bootstrap."""
    if max(values) == min(values):
        return values[0], values[0]
    found = bootstrap(
        (np.asarray(values),), np.median, confidence_level=LEVEL, n_resamples=RESAMPLES, method="percentile",
        random_state=np.random.default_rng(0), vectorized=True,
    ).confidence_interval  # fmt: skip
    return float(found.low), float(found.high)


def _overlaps(events: Iterable[Event]) -> tuple[Overlap, ...]:
    """One per cell: it is told once per length and number of requests at once."""
    sums: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    for event in events:
        if event.kind == "gain.overlap":
            told = {name: int(event[name]) for name in ("loads", "pending", "waited")}
            sums[str(event["branch"]), str(event["cell"])].update(told)
    return tuple(Overlap(branch, cell, **counts) for (branch, cell), counts in sums.items())


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
