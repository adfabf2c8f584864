"""A comparison judged from synthetic recordings: what counts as beyond the noise, and what gets no figure at all."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from e2e.base.event import Event
from e2e.base.gain import FASTER, NOTHING, SLOWER, UNSEEN, WITHIN, Change
from e2e.base.judgement import CellJudgement, Judgement, LengthTtft, Ttft
from e2e.base.verdict import Reason, Verdict
from e2e.judge import gain as room
from e2e.report import gain as report
from e2e.report import markdown

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
    said = report.sentence(same)
    assert said.startswith("within the noise, where 5.0 % would have been seen: do not make the change (")
    slower = judged(monkeypatch, recording(b=1.5)).answers[0]
    assert report.sentence(slower).endswith(": slower, do not make the change")


def test_a_noisy_machine_can_not_tell_and_says_what_it_could(monkeypatch):
    """Not "do not make the change", and not green: 5 % less may well be true here."""
    found = judged(monkeypatch, recording(b=0.95, spread=0.4))
    whole = found.answers[0]
    assert (whole.answer, found.exit_code) == (UNSEEN, 3)
    assert whole.smallest > whole.sought == 0.05
    said = f"this run tells {whole.smallest * 100:.1f} % and more from noise, and 5.0 % was asked for"
    assert report.sentence(whole).startswith(f"can't be seen here: {said}")


def test_what_is_asked_for_decides_whether_it_would_have_been_seen(monkeypatch):
    events = recording(spread=0.05)
    (least,) = {judged(monkeypatch, events).answers[0].smallest}
    for effect, answer in ((least * 1.01, WITHIN), (least * 0.99, UNSEEN)):
        asked = [Event(e.kind, {**e.data, "effect": effect}) if e.kind == "gain.plan" else e for e in events]
        assert judged(monkeypatch, asked).answers[0].answer == answer


def placed(device_us: float | None, *, requests: int = 3) -> Event:
    counts = {
        "device": "cuda", "launches": {"copy": 60},
        "placement": {"calls": 90, "launches": {"index_put": 30}, "device_us": device_us},
    }  # fmt: skip
    about = {"branch": "HND-chunkwise", "side": "a", "engine": "e", "length": 513, "requests": requests}
    return Event("gain.launches", {**about, "counts": counts})


def test_a_part_that_takes_next_to_nothing_can_not_be_seen_here_however_quiet_the_machine(monkeypatch):
    """As on an H200 whose TTFT was spent copying: 7 ms of 867 were placement."""
    quiet = recording(spread=0.01)
    assert judged(monkeypatch, [*quiet, placed(3 * 1500.0)]).answers[0].answer == WITHIN  # 1.5 of 20 ms
    found = judged(monkeypatch, [*quiet, placed(3 * 160.0)])  # 0.16 ms
    whole = found.answers[0]
    assert (whole.answer, found.exit_code) == (UNSEEN, 3)
    assert whole.share.share == whole.sought == pytest.approx(0.008, rel=0.05)
    assert report.sentence(whole).startswith("can't be seen here: this run tells ")
    assert "and placement takes 0.8 % of TTFT (" in report.sentence(whole)


def test_what_the_part_would_take_at_the_machines_own_copy_speed_is_derived(monkeypatch):
    """512 tokens of 23,040 bytes at 2.36 GB/s: 5 ms; with 4 ms from the local cache and 1 ms of placement 10 ms."""
    effective = {"num_layers": 30, "heads": 3, "head_size": 64, "dtype": "bfloat16"}
    copy = {"branch": "HND-chunkwise", "engine": "e", "bytes": 2_359_296_000, "seconds": 1.0, "how": "a copy"}
    events = [
        *recording(), placed(3 * 1000.0), Event("engine.config", {"engine": "e", "effective": effective}),
        Event("gain.copy", copy),
    ]  # fmt: skip
    by_length = (LengthTtft(513, 0.1, 0.1, 0.004, 0.02, 0.02, 5.0, 0.0),)
    local = Judgement(tuple(replace(cell, ttft=Ttft(by_length=by_length)) for cell in cells().cells))
    monkeypatch.setattr(room, "judge", lambda _: local)
    found = room.judge_gain(events)
    share = found.answers[0].share
    assert share.share == pytest.approx(1 / 20, rel=0.05)
    assert share.at_copy_speed == pytest.approx(1 / 10)
    assert found.copy_speed == 2_359_296_000
    text = markdown.render(report.document(found, events))
    assert "derived: 10.0 % at the machine's own copy speed" in text
    assert "The machine's own copy speed, measured in the engine: 2.4 GB/s." in text
    without = [event for event in events if event.kind != "gain.copy"]
    assert room.judge_gain(without).answers[0].share.at_copy_speed is None


def test_on_a_cpu_the_connectors_own_clock_tells_and_else_it_is_unknown(monkeypatch):
    took = {"branch": "HND-chunkwise", "engine": "e", "cell": "HND-index", "concurrency": 1, "length": 513}
    timed = Event("gain.timings", {**took, "loads": 10, "read_s": 0.05, "place_s": 0.02})
    share = judged(monkeypatch, [*recording(), placed(None), timed]).answers[0].share
    assert (share.seconds, share.what) == (pytest.approx(0.002), "placement, by the connector's own clock")
    on_a_gpu = Event("gain.timings", {**timed.data, "place_s": None})
    found = judged(monkeypatch, [*recording(), on_a_gpu])
    assert found.answers[0].share is None
    assert "HND-chunkwise: unknown" in markdown.render(report.document(found, recording()))


def test_of_any_other_axis_the_load_is_all_that_it_can_save_beside_the_quicker_local_rerun(monkeypatch):
    """Side a's, the first of an engine, took longer than its loads."""
    ttfts = [Ttft(by_length=(LengthTtft(513, 0.1, 0.1, local_s, 0.02, 0.02, 5.0, 0.0),)) for local_s in (0.095, 0.015)]
    local = Judgement(tuple(replace(cell, ttft=ttft) for cell, ttft in zip(cells().cells, ttfts, strict=True)))
    monkeypatch.setattr(room, "judge", lambda _: local)
    events = [Event(e.kind, {**e.data, "axis": "overlap"}) if e.kind == "gain.plan" else e for e in recording()]
    share = room.judge_gain(events).answers[0].share
    assert share.share == pytest.approx(0.25, abs=0.01)
    assert share.what.startswith("the load")


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


@given(st.floats(-0.5, 0.5), st.floats(0, 0.2), st.floats(0, 0.3), st.booleans())
def test_beyond_the_noise_never_holds_zero_nor_the_noise(median, half, noise, sharp):
    change, floor = Change(median, median - half, median + half, 9), Change(0, -noise, noise, 9)
    answer = room.verdict(change, floor, sharp)
    assert (answer == WITHIN) <= sharp
    beyond = change.low > noise or change.high < -noise
    assert (answer in (FASTER, SLOWER)) == beyond
    if beyond:
        assert (answer == FASTER) == (median < 0)
        assert room.verdict(change, replace(floor, high=1.0), sharp) == (WITHIN if sharp else UNSEEN)


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
    assert '"maru-e2e/gain/3"' in (tmp_path / "gain.json").read_text()


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
