"""What a user gains is told against an engine without a connector, and what storing costs beside it."""

from __future__ import annotations

from dataclasses import asdict

import pytest
from synthetic_recording import BASELINE, CONNECTOR, Recording
from test_judge_oracle import verdict

from e2e.base.judgement import NO_PLAIN_RUN, NOT_PROVEN, NOT_TIMED, NOT_WHOLE, Judgement
from e2e.base.speed import FEWEST, by_length, figure, interval
from e2e.base.verdict import Verdict


def took(ms: float):
    return lambda data: data.update(first_ns=data["sent_ns"] + round(ms * 1e6))


def timed(*, baseline: float, cold: float, external: float, again: float | None = None) -> Recording:
    """Milliseconds of each prompt."""
    recording = Recording()
    recording.change("request.done", took(baseline), engine=BASELINE, arm="cold")
    recording.change("request.done", took(cold), engine=CONNECTOR, arm="cold")
    recording.change("request.done", took(external), arm="external")
    return recording.change("request.done", took(external if again is None else again), arm="external_again")


def test_what_storing_costs_is_no_part_of_the_speedup():
    """As on one H200: cold against external on the connector's own engine would have claimed 3.6x."""
    ttft = verdict(timed(baseline=890, cold=3100, external=870, again=783)).ttft
    assert ttft.speedup == pytest.approx(890 / 870)
    assert ttft.store_cost == pytest.approx(3100 / 890 - 1)
    assert (ttft.baseline_cold_s, ttft.cold_s, ttft.external_s) == pytest.approx((2.67, 9.3, 2.61))
    assert ttft.no_speedup is None
    for each in ttft.by_length:
        assert (each.speedup, each.store_cost) == pytest.approx((ttft.speedup, ttft.store_cost))
        assert each.again_s == pytest.approx(0.783)


@pytest.mark.parametrize("ms", [1, 50, 100_000])
def test_the_cold_run_with_the_connector_never_moves_the_speedup(ms):
    ttft = verdict(timed(baseline=200, cold=ms, external=50)).ttft
    assert ttft.speedup == pytest.approx(4.0)
    assert ttft.store_cost == pytest.approx(ms / 200 - 1)


def test_an_engine_that_somebody_else_started_has_no_speedup_and_says_why():
    ttft = verdict(Recording(baseline=False, blind=[{"fault_class": "first answer", "why": "attached"}])).ttft
    assert (ttft.speedup, ttft.claimed_speedup, ttft.store_cost, ttft.baseline_cold_s) == (None, None, None, None)
    assert ttft.no_speedup == NO_PLAIN_RUN
    assert ttft.cold_s > ttft.external_s, "which used to make one"


def untimed() -> Recording:
    """As fast as the one above would be, had it been alone."""
    recording = timed(baseline=200, cold=300, external=50)
    return recording.change("plan.cell", lambda data: data.update(timed=False))


def test_a_cell_beside_other_engines_has_its_verdict_and_no_time():
    cell = verdict(untimed())
    assert cell.verdict is Verdict.PASS
    figures = asdict(cell.ttft)
    lengths = figures.pop("by_length")
    assert {name: value for name, value in figures.items() if value is not None} == {"no_speedup": NOT_TIMED}
    assert [[name for name in each if each[name] is not None] for each in lengths] == [["tokens"]] * 3
    assert by_length(Judgement((cell,))) == ()


def test_what_is_not_proven_or_not_whole_has_none():
    spoilt = timed(baseline=200, cold=300, external=50).change(
        "request.done", lambda data: data["token_ids"].__setitem__(2, 5), arm="external", prompt=1
    )
    cell = verdict(spoilt)
    assert cell.verdict is Verdict.CORRUPT
    assert (cell.ttft.speedup, cell.ttft.no_speedup) == (None, NOT_PROVEN)
    assert cell.ttft.claimed_speedup == pytest.approx(4.0)
    assert {each.speedup for each in cell.ttft.by_length} == {None}
    lost = verdict(Recording().drop("request.done", engine=BASELINE, arm="cold", prompt=0))
    assert lost.ttft.speedup is None
    assert lost.ttft.no_speedup in (NOT_PROVEN, NOT_WHOLE)


def test_per_length_over_cells_with_intervals_and_the_noise_beside_them():
    externals = (100, 110, 120, 130, 140)
    cells = [verdict(timed(baseline=600, cold=660, external=ms, again=ms * 1.05)) for ms in externals]
    wrong = verdict(Recording().drop("metrics.delta"))
    shortest, *_ = found = by_length(Judgement((*cells, wrong)))
    assert [each.tokens for each in found] == [513, 1033, 1546]
    assert (shortest.cells, shortest.speedup.values) == (5, 5)
    assert shortest.speedup.median == pytest.approx(5.0)
    assert 600 / 140 <= shortest.speedup.low < 5 < shortest.speedup.high <= 6
    assert shortest.store_cost.median == pytest.approx(0.1)
    assert (shortest.noise.median, shortest.noise.low, shortest.noise.high) == pytest.approx((0.05, 0.05, 0.05))
    assert (shortest.baseline_cold_s, shortest.external_s) == pytest.approx((0.6, 0.12))


def test_few_values_have_no_interval_and_none_have_no_figure():
    assert figure([None, None]) is None
    few = figure([1.0] * (FEWEST - 1) + [None])
    assert (few.median, few.low, few.high, few.values) == (1.0, None, None, FEWEST - 1)


def test_the_interval_is_the_same_every_time_and_narrows():
    values = [1 + (i * 7919 % 100) / 1000 for i in range(100)]
    assert interval(values) == interval(values)
    (low, high), (few_low, few_high) = interval(values), interval(values[:9])
    assert few_low <= low <= sorted(values)[50] <= high <= few_high
