"""A comparison judged from synthetic recordings: what counts as beyond the noise, and what gets no figure at all."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from e2e.base.event import Event
from e2e.base.gain import FASTER, NOTHING, SLOWER, WITHIN, Change
from e2e.base.judgement import CellJudgement, Judgement
from e2e.base.verdict import Reason, Verdict
from e2e.judge import gain as room
from e2e.report import gain as report

PLAN = {
    "mode": "axis", "axis": "placement", "names": {"a": "index", "b": "kernel"}, "concurrency": [1], "lengths": [513],
    "pairs": [{"branch": "HND-chunkwise", "a": "HND-index", "b": "HND-kernel"}], "repeats": 30, "rounds": 1,
    "double": True, "device": "cuda", "attempt": 1,
}  # fmt: skip


def cells(**verdicts: Verdict) -> Judgement:
    found = {"HND_index": Verdict.PASS, "HND_kernel": Verdict.PASS, **verdicts}
    reason = {Verdict.PASS: None, Verdict.CORRUPT: Reason.TOKENS_DIFFER}
    return Judgement(
        tuple(
            CellJudgement(n.replace("_", "-"), 1, "HND", "embedded", {}, {}, v, reason[v], ()) for n, v in found.items()
        )
    )


def recording(*, b: float = 1.0, spread: float = 0.01, pairs: int = 30, **changed: object) -> list[Event]:
    """Pairs at 20 ms, ``b`` times as long for side b, each sample off by up to ``spread``."""
    rng = random.Random(7)
    events = [Event("gain.plan", PLAN)]
    for number in range(pairs):
        for order, (side, factor) in enumerate({"a": 1.0, "b": b, "a2": 1.0}.items()):
            seconds = 0.02 * factor * (1 + rng.uniform(-spread, spread))
            data = {
                "branch": "HND-chunkwise", "side": side, "engine": "e", "concurrency": 1, "length": 513, "round": 1,
                "number": number, "order": order, "ttft_s": [seconds], "server": {"sum_s": seconds / 2, "count": 1},
                "local": 0, "external": 512, "expected": 512,
            }  # fmt: skip
            events.append(Event("gain.sample", {**data, **changed}))
    return events


def judged(monkeypatch, events, **verdicts):
    monkeypatch.setattr(room, "judge", lambda _: cells(**verdicts))
    return room.judge_gain(events)


def test_a_connector_that_may_serve_fewer_is_timed_with_what_it_served(monkeypatch):
    rounded = {"external": 464, "expected": 512}
    assert judged(monkeypatch, recording(b=0.8, **rounded, least=464)).answers[0].answer == FASTER
    assert judged(monkeypatch, recording(b=0.8, **rounded, least=480)).answers[0].left_out == 90
    assert judged(monkeypatch, recording(b=0.8, **rounded)).answers[0].left_out == 90


@pytest.mark.parametrize(("b", "answer"), [(0.8, FASTER), (1.25, SLOWER), (1.0, WITHIN), (0.999, WITHIN)])
def test_answer(monkeypatch, b, answer):
    found = judged(monkeypatch, recording(b=b))
    whole = found.answers[0]
    assert (whole.answer, whole.length, whole.client.pairs) == (answer, None, 30)
    assert whole.client.median == pytest.approx(b - 1, abs=0.01)
    assert found.exit_code == 0


def test_sentences(monkeypatch):
    faster = judged(monkeypatch, recording(b=0.8)).answers[0]
    assert report.sentence(faster).startswith("beyond the noise: -20.")
    assert report.sentence(faster).endswith(" at 1 at once")
    same = judged(monkeypatch, recording()).answers[0]
    assert report.sentence(same).startswith("within the noise: do not make the change (")
    slower = judged(monkeypatch, recording(b=1.5)).answers[0]
    assert report.sentence(slower).endswith(": slower, do not make the change")


def test_a_noisy_machine_shows_nothing(monkeypatch):
    assert judged(monkeypatch, recording(b=0.95, spread=0.4)).answers[0].answer == WITHIN


def test_a_corrupt_setting_gets_no_figure(monkeypatch):
    found = judged(monkeypatch, recording(b=0.1), HND_kernel=Verdict.CORRUPT)
    assert {answer.answer for answer in found.answers} == {NOTHING}
    assert found.answers[0].client is None
    assert found.answers[0].why == "HND-kernel is corrupt"
    assert found.exit_code == 1


@pytest.mark.parametrize("changed", [{"external": 0}, {"local": 512}, {"external": None}])
def test_what_was_not_served_as_predicted_is_left_out(monkeypatch, changed):
    found = judged(monkeypatch, recording(b=0.5, **changed))
    assert (found.answers[0].answer, found.answers[0].left_out, found.exit_code) == (NOTHING, 90, 3)


def test_too_few_pairs_say_nothing(monkeypatch):
    assert judged(monkeypatch, recording(b=0.5, pairs=4)).answers[0].answer == NOTHING


def test_a_recording_without_comparison():
    assert room.judge_gain([]) is None


def test_same_recording_same_answer(monkeypatch):
    events = recording(b=0.9)
    assert judged(monkeypatch, events) == judged(monkeypatch, events)


@given(st.floats(-0.5, 0.5), st.floats(0, 0.2), st.floats(0, 0.3))
def test_beyond_the_noise_never_holds_zero_nor_the_noise(median, half, noise):
    change, floor = Change(median, median - half, median + half, 9), Change(0, -noise, noise, 9)
    answer = room.verdict(change, floor)
    beyond = change.low > noise or change.high < -noise
    assert (answer in (FASTER, SLOWER)) == beyond
    if beyond:
        assert (answer == FASTER) == (median < 0)
        assert room.verdict(change, replace(floor, high=1.0)) == WITHIN


def test_launches(monkeypatch):
    counts = {
        "device": "cuda", "launches": {"copy": 60, "index_put": 30},
        "placement": {"calls": 90, "launches": {"index_put": 30}, "device_us": 300.0},
    }  # fmt: skip
    data = {"branch": "x", "side": "a", "engine": "e", "length": 513, "requests": 3, "counts": counts}
    found = judged(monkeypatch, [*recording(), Event("gain.launches", data)]).launches[0]
    assert (found.total, found.placement, found.device_us) == (30, 10, 100)
    unseen = {**counts, "placement": {"calls": 90, "launches": {}, "device_us": 0}}
    found = judged(monkeypatch, [*recording(), Event("gain.launches", {**data, "counts": unseen})]).launches[0]
    assert (found.placement, found.device_us) == (None, None)


def test_overlap_is_summed_over_lengths(monkeypatch, tmp_path):
    data = {"branch": "x", "engine": "e", "cell": "HND-kernel", "loads": 10, "pending": 3, "waited": 1}
    events = [*recording(), Event("gain.overlap", data), Event("gain.overlap", {**data, "pending": 0, "waited": 0})]
    found = judged(monkeypatch, events)
    assert [(each.loads, each.pending, each.waited) for each in found.overlaps] == [(20, 3, 1)]
    report.write(found, events, tmp_path)
    said = "HND-kernel: 3 of 20 had layers missing when the forward began, 1 made it wait"
    assert said in (tmp_path / "gain.md").read_text()


def test_report_says_what_was_measured(monkeypatch, tmp_path):
    events = recording(b=0.8)
    found = judged(monkeypatch, events)
    report.write(found, events, tmp_path)
    text = (tmp_path / "gain.md").read_text()
    assert report.DOUBLE in text
    assert '"maru-e2e/gain/2"' in (tmp_path / "gain.json").read_text()


def test_the_double_is_named_also_when_a_file_gave_it(monkeypatch, tmp_path):
    plain = [Event(e.kind, {**e.data, "double": False}) if e.kind == "gain.plan" else e for e in recording()]
    double, maru, none = (
        Event("engine.config", {"engine": "e", "effective": {"connector": name}})
        for name in ("e2e.inside.connector.EmbeddedConnector", "maru_vllm.connector.MaruKVConnector", None)
    )
    for loaded, said in (
        ([], None), ([maru, none], None), ([double, none], report.DOUBLE), ([none, maru, double], report.ONE_DOUBLE),
    ):  # fmt: skip
        events = [*plain, *loaded]
        report.write(judged(monkeypatch, events), events, tmp_path)
        text = (tmp_path / "gain.md").read_text()
        assert [words for words in (report.DOUBLE, report.ONE_DOUBLE) if words in text] == ([said] if said else [])
