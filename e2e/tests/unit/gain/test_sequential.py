"""Intervals that may be looked at more than once keep the error rate that they state, and say what they can tell."""

from __future__ import annotations

import math
import random
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from e2e.base.event import Event
from e2e.judge.gain import Asked, settled
from e2e.judge.sequential import ERROR_RATE, POWER, fewest, interval, smallest, spent


@given(st.integers(1, 40))
def test_all_looks_together_spend_the_error_rate_and_nothing_more(looks):
    rates = [spent(look, looks) for look in range(1, looks + 1)]
    assert min(rates) > 0
    assert sum(rates) == pytest.approx(ERROR_RATE)


@pytest.mark.parametrize(
    ("count", "rate", "kth"),
    [(5, 0.05, 0), (6, 0.05, 1), (8, 0.05, 1), (9, 0.05, 2), (10, 0.05, 2), (20, 0.05, 6), (30, 0.05, 10)],
)
def test_the_interval_is_the_sign_tests(count, rate, kth):
    """Order statistics as tables have them, such as Conover's A3."""
    values = [float(n) for n in range(count)]
    random.Random(1).shuffle(values)
    found = interval(values, rate)
    assert found == ((kth - 1.0, float(count - kth)) if kth else None)


@given(st.floats(1e-4, 0.5))
def test_so_many_values_have_an_interval_and_one_less_has_none(rate):
    least = fewest(rate)
    assert interval([0.0] * least, rate) is not None
    assert interval([0.0] * (least - 1), rate) is None


def comparison(rng: random.Random, *, effect: float, pairs: int, look: int, length: int = 513) -> list[Event]:
    """What a moment is like is the same for all sides of a pair, and skewed, as times are."""
    events = []
    for number in range(pairs * (look - 1), pairs * look):
        moment = rng.expovariate(10)
        for side, factor in {"a": 1.0, "b": 1 - effect, "a2": 1.0}.items():
            seconds = 0.05 * factor * (1 + moment) * math.exp(rng.gauss(0, 0.03) + rng.expovariate(30))
            data = {
                "branch": "x", "side": side, "engine": "e", "concurrency": 1, "length": length, "round": 1,
                "number": number, "order": 0, "ttft_s": [seconds], "server": {"sum_s": 0.0, "count": 0},
                "local": 0, "external": 512, "expected": 512, "look": look,
            }  # fmt: skip
            events.append(Event("gain.sample", data))
    return events


def answers(effect: float, *, times: int, looks: int) -> list[tuple[str, int]]:
    """(answer, look after which it stopped) of so many runs that are looked at until they can tell."""
    from e2e.judge.gain import _answer, _samples

    found, asked = [], Asked(looks, 0.05)
    for seed in range(times):
        rng, events = random.Random(seed), []
        for look in range(1, looks + 1):
            events += comparison(rng, effect=effect, pairs=10, look=look)
            if settled(events, asked, {"branch": "x", "a": "one", "b": "other"}, 1):
                break
        answer = _answer("x", 1, None, _samples(events, "x"), asked, None)
        found.append((answer.answer, answer.look))
    return found


def test_a_change_that_does_nothing_is_called_one_no_more_often_than_stated():
    found = [answer for answer, _ in answers(0.0, times=300, looks=4)]
    assert sum(answer in ("faster", "slower") for answer in found) / len(found) <= ERROR_RATE


def test_intervals_alone_keep_the_stated_rate_when_looked_at_early():
    """Without the noise floor, which hides most false alarms: zero must stay in all intervals of a run."""
    rates = [spent(look, 5) for look in range(1, 6)]
    missed = naive = 0
    for seed in range(600):
        rng = random.Random(seed)
        values = [rng.gauss(0, 1) ** 3 for _ in range(60)]
        batches = list(accumulate([12] * 5))
        found = [interval(values[:n], rate) for n, rate in zip(batches, rates, strict=True)]
        missed += any(low > 0 or high < 0 for low, high in found)
        naive += any(low > 0 or high < 0 for low, high in (interval(values[:n], ERROR_RATE) for n in batches))
    assert missed / 600 <= ERROR_RATE < naive / 600, "peeking at 95 % intervals would not have kept it"


def test_a_large_effect_ends_it_early_and_a_small_one_draws_on():
    large, none = answers(0.4, times=20, looks=4), answers(0.0, times=20, looks=4)
    assert {answer for answer, _ in large} == {"faster"}
    assert sum(look for _, look in large) < sum(look for _, look in none) / 2


def test_pairs_are_drawn_on_while_the_changed_part_takes_less_than_can_be_told():
    """An effect of half the TTFT would be seen at once, and nothing of a part that takes 2 %."""
    took = {"branch": "x", "engine": "e", "cell": "one", "concurrency": 1, "length": 513}
    events = comparison(random.Random(3), effect=0.0, pairs=20, look=1)
    pair, asked = {"branch": "x", "a": "one", "b": "other"}, Asked(2, 0.5, "placement")
    assert settled(events, asked, pair, 1)
    timed = Event("gain.timings", {**took, "loads": 10, "read_s": 0.1, "place_s": 0.012})
    assert not settled([*events, timed], asked, pair, 1)


@pytest.mark.parametrize("pairs", [30, 60])
def test_the_smallest_effect_is_found_about_as_often_as_it_says(pairs):
    """Normal log ratios of spread 0.1 and a floor of 0.02: of runs with an effect as large as the typical one says,
    about four of five find it beyond the floor."""
    rng, floor = random.Random(5), 0.02

    def drawn(effect):
        return interval([rng.gauss(effect, 0.1) for _ in range(pairs)], ERROR_RATE)

    told = sorted(smallest(*drawn(0.0), floor, ERROR_RATE) for _ in range(200))[100]
    found = sum(drawn(math.log1p(-told))[1] < -floor for _ in range(400)) / 400
    assert POWER - 0.1 < found < POWER + 0.15
