"""Whatever happens to a recording, it is refused with its line named, or judged no better than it was, and rendered."""

from __future__ import annotations

import json
from collections import defaultdict
from functools import cache
from pathlib import Path

import pytest
from damage import Place, at, entries, judged, lines_of, places, renumbered, replaced, verdicts
from hypothesis import given, settings
from hypothesis import strategies as st
from synthetic_digests import add_digests, packed, pages
from synthetic_recording import Recording

from e2e.base.event import Event
from e2e.base.verdict import Verdict
from e2e.judge import judge
from e2e.judge.gain import judge_gain
from e2e.recording.journal import read

H200 = Path(__file__).resolve().parents[2] / "recordings" / "h200"
DEFECT, SYNTHETIC, DIGESTS, GAIN = "defect of a GPU", "synthetic", "synthetic with digests", "gain of a GPU"
JUDGED = (DEFECT, SYNTHETIC, DIGESTS)
#: Repeatable, so that a build does not fail by chance; a longer search is one number away.
often = settings(max_examples=80, derandomize=True)

junk = st.recursive(
    st.none()
    | st.booleans()
    | st.sampled_from([0, -1, 1, 16, 2**63, 10**400, -0.0, 1e308, 1e-9])
    | st.sampled_from(["", "x", "HND", "NaN", "\x1b[31m<script>", "Ö" * 40]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "versions"]), inner, max_size=2),
    max_leaves=6,
)


@cache
def original(name: str) -> list[dict]:
    if name == DEFECT:
        return entries(read(H200 / "defect.jsonl.gz"))
    if name == GAIN:
        return one_branch(read(H200 / "gain-hnd.jsonl.gz"))
    recording = Recording(digests=name == DIGESTS)
    return entries((add_digests(recording) if name == DIGESTS else recording).build())


def one_branch(events: list[Event]) -> list[dict]:
    """Of a comparison, one pair of cells and what was measured of it."""
    plan = next(event for event in events if event.kind == "gain.plan")
    pair = plan["pairs"][0]
    gone = {each[side] for each in plan["pairs"][1:] for side in "ab"}
    requests = {e["request"] for e in events if e.kind == "request.sent" and e["cell"] in gone}
    kept = [
        event
        for event in events
        if event.data.get("cell") not in gone
        and event.data.get("request") not in requests
        and event.data.get("branch", pair["branch"]) == pair["branch"]
    ]
    smaller = {"pairs": [pair]}
    return entries([Event(e.kind, {**e.data, **smaller}, e.t_ns) if e is plan else e for e in kept])


@cache
def before(name: str) -> dict[str, Verdict]:
    return verdicts(judge([Event(e["kind"], e["data"], e["t_ns"]) for e in original(name)]))


@cache
def values_of(name: str) -> dict[tuple[str, Place], list[tuple[int, Place]]]:
    """Values alike (of one kind of event, under equal keys) -> line and place of each: none is drawn too seldom."""
    found = defaultdict(list)
    for number, entry in enumerate(original(name)):
        for place in places(entry):
            alike = tuple("*" if isinstance(key, int) or key.startswith("token_id:") else key for key in place)
            found[entry["kind"], alike].append((number, place))
    return dict(found)


def near(value: object, name: str) -> st.SearchStrategy:
    """Values of the same type: what damage would have to be to be overlooked."""
    if isinstance(value, bool):
        return st.just(not value)
    if isinstance(value, int):
        return st.sampled_from([value + 1, value - 1, 0, 2 * value, -value])
    if isinstance(value, float):
        return st.sampled_from([value * 1.5, value + 1e-9, 0.0, -value])
    if isinstance(value, str):
        others = [
            e["data"][key] for e in original(name) for key in ("engine", "cell", "arm", "request") if key in e["data"]
        ]
        return st.sampled_from([value + "x", *(other for other in others[:60] if other)])
    if isinstance(value, list):
        return st.sampled_from([value[:-1], value + value[:1]])
    return st.just({key: value[key] for key in sorted(value)[1:]}) if isinstance(value, dict) else st.just("x")


def no_better(name: str, lines: list[str], folder: Path) -> None:
    judgement = judged(lines, folder)
    if judgement is None:
        return
    was, now = before(name), verdicts(judgement)
    assert judgement.verdict.weight >= max(verdict.weight for verdict in was.values())
    assert not [cell for cell in was if cell in now and now[cell].weight < was[cell].weight]


@pytest.mark.parametrize("name", JUDGED)
@often
@given(data=st.data())
def test_any_one_value_replaced(tmp_path_factory, name, data):
    alike = data.draw(st.sampled_from(sorted(values_of(name))))
    number, place = data.draw(st.sampled_from(values_of(name)[alike]))
    entry = original(name)[number]
    value = data.draw(junk | near(at(entry, place), name))
    lines = lines_of(original(name))
    lines[number] = json.dumps(replaced(entry, place, value))
    no_better(name, lines, tmp_path_factory.getbasetemp())


@settings(max_examples=40, derandomize=True)
@given(data=st.data())
def test_any_one_value_of_a_comparison_replaced(tmp_path_factory, data):
    test_any_one_value_replaced.hypothesis.inner_test(tmp_path_factory, GAIN, data)


@pytest.mark.parametrize("name", JUDGED)
def test_any_line_lost_or_doubled_is_refused_and_the_last_one_is_not_missed_by_a_verdict(tmp_path, name):
    lines = lines_of(original(name))
    for number in range(len(lines) - 1):
        assert judged([*lines[:number], *lines[number + 1 :]], tmp_path) is None
    for number in range(len(lines)):
        assert judged([*lines[: number + 1], *lines[number:]], tmp_path) is None
    no_better(name, lines[:-1], tmp_path)


@pytest.mark.parametrize("name", JUDGED)
@often
@given(data=st.data())
def test_any_two_lines_swapped_are_refused(tmp_path_factory, name, data):
    lines = lines_of(original(name))
    first, second = data.draw(st.lists(st.integers(0, len(lines) - 1), min_size=2, max_size=2, unique=True))
    lines[first], lines[second] = lines[second], lines[first]
    assert judged(lines, tmp_path_factory.getbasetemp()) is None


@pytest.mark.parametrize("name", JUDGED)
@often
@given(data=st.data())
def test_any_line_cut_is_refused(tmp_path_factory, name, data):
    lines = lines_of(original(name))
    number = data.draw(st.integers(0, len(lines) - 1))
    lines[number] = lines[number][: data.draw(st.integers(0, len(lines[number]) - 1))]
    assert judged(lines, tmp_path_factory.getbasetemp()) is None


@pytest.mark.parametrize("name", JUDGED)
@settings(max_examples=40, derandomize=True)
@given(data=st.data())
def test_a_recording_cut_anywhere_is_judged_and_nothing_passes_that_did_not(tmp_path_factory, name, data):
    """Its torn last line is left out; what was seen until then counts."""
    folder = tmp_path_factory.getbasetemp()
    whole = "".join(f"{line}\n" for line in lines_of(original(name))).encode()
    path = folder / "cut.jsonl"
    path.write_bytes(whole[: data.draw(st.integers(0, len(whole)))])
    found = judged(lines_of(entries(read(path))), folder)
    was = before(name)
    assert all(was[cell] is Verdict.PASS for cell, verdict in verdicts(found).items() if verdict is Verdict.PASS)


#: What has no part in a verdict.
IDLE = ("note", "run.begin", "run.end", "engine.ready", "engine.stop")


@pytest.mark.parametrize("name", JUDGED)
def test_no_event_can_be_left_out_by_whoever_numbers_the_lines_again(tmp_path, name):
    """Read or judged: the cells that the event belongs to do not pass."""
    whole = original(name)
    engines = {e["data"]["engine"]: e["data"]["role"] for e in whole if e["kind"] == "engine.start"}
    sent = {e["data"]["request"]: e["data"] for e in whole if e["kind"] == "request.sent"}
    for number, entry in enumerate(whole):
        left = renumbered([*whole[:number], *whole[number + 1 :]])
        about = {**sent.get(entry["data"].get("request"), {}), **entry["data"]}
        mine = [about["cell"]] if about.get("cell") else list(before(name))
        judgement = judge([Event(e["kind"], e["data"], e["t_ns"]) for e in left])
        idle = entry["kind"] in IDLE or (entry["kind"] == "engine.start" and engines[about["engine"]] == "connector")
        idle = idle or (entry["kind"] == "fault.fired" and before(name)[about["cell"]] is not Verdict.PASS)
        now = verdicts(judgement)
        passing = [cell for cell in mine if now.get(cell) is Verdict.PASS]
        assert idle or not passing, entry
        read_again = judged(lines_of(left), tmp_path) if number % 7 == 0 else None
        assert read_again is None or verdicts(read_again) == now


#: What may be another value of its type in a recording that passes: times, names for people, what is counted on the
#: way, and promises of the plan that were more than kept. Everything else is evidence.
FREE = """
engine.ready.start_s request.done.sent_ns request.done.first_ns request.done.done_ns metrics.delta.ttft.sum_s
engine.start.argv engine.start.argv.* engine.start.launcher engine.start.log
run.begin.command run.begin.run_id run.begin.versions.maru-e2e run.begin.machine.cpus run.begin.wall_time
plan.cell.adapter plan.cell.lengths plan.cell.lengths.*
plan.cell.settings.layout plan.cell.settings.load plan.cell.settings.overlap
plan.cell.settings.placement plan.cell.settings.storage_format plan.cell.baseline plan.cell.counters plan.cell.digests
request.done.finish_reason reset.local.tries overwrite.free.seed overwrite.free.blocks expect.hit.tokens
metrics.delta.counters.external_queries metrics.delta.counters.local_compute
connector.evidence.loads connector.evidence.loads.*.request connector.evidence.loads.*.tokens
connector.evidence.loads.*.layers connector.evidence.loads.*.places connector.evidence.loads.*.pending_at_forward
connector.evidence.loads.*.blocking_waits digest.taken.tokens digest.taken.block_size
"""


def other(value: object) -> object:
    if isinstance(value, bool):
        return not value
    if isinstance(value, (int, float)):
        return value + 1
    return f"{value}x" if isinstance(value, str) else [*value, *value[:1]] if isinstance(value, list) else value


def test_only_what_is_no_evidence_may_change_without_a_word(tmp_path):
    stayed = set()
    for (kind, alike), found in values_of(DIGESTS).items():
        for number, place in {found[0], found[-1]}:
            entry = original(DIGESTS)[number]
            value = other(at(entry, place))
            lines = lines_of(original(DIGESTS))
            lines[number] = json.dumps(replaced(entry, place, value))
            same = value == at(entry, place) or alike == ("t_ns",)
            if not same and (judgement := judged(lines, tmp_path)) and judgement.verdict is Verdict.PASS:
                stayed.add(".".join((kind, *map(str, alike[1:]))))
    assert stayed == set(FREE.split())


def found_before(kind: str, number: int, edit) -> list[str]:
    """Lines of the synthetic recording with digests, with ``edit`` done to the data of its n-th event of a kind."""
    whole = entries([Event(e["kind"], e["data"], e["t_ns"]) for e in original(DIGESTS)])
    edit([entry for entry in whole if entry["kind"] == kind][number]["data"])
    return lines_of(whole)


def test_digests_of_another_rank_are_not_overlooked(tmp_path):
    """Found by the search: nothing was compared with a rank that the cold run does not have."""
    assert judged(found_before("digest.taken", -1, lambda data: data.update(rank=1)), tmp_path).exit_code == 3


def test_digests_of_fewer_blocks_than_were_served_are_no_proof(tmp_path):
    def shorten(data):
        data.update(blocks=1, values=packed(pages(data["prompt"], 1)), tokens=16)

    assert judged(found_before("digest.taken", -1, shorten), tmp_path).exit_code == 3


def test_a_second_digest_does_not_hide_a_wrong_first_one(tmp_path):
    whole = entries([Event(e["kind"], e["data"], e["t_ns"]) for e in original(DIGESTS)])
    wrong = entries([Event("digest.taken", whole[-1]["data"], whole[-1]["t_ns"])])[0]
    values = pages(wrong["data"]["prompt"], wrong["data"]["blocks"])
    values[1, 0, 1, 3] += 1
    wrong["data"]["values"] = packed(values)
    assert judged(lines_of(renumbered([*whole[:-1], wrong, whole[-1]])), tmp_path).exit_code == 1


def test_no_block_overwritten_is_none_even_below_zero(tmp_path):
    assert judged(found_before("overwrite.free", 0, lambda data: data.update(blocks=-1)), tmp_path).exit_code == 3


def test_versions_that_are_no_table_are_refused(tmp_path):
    assert (
        judged(found_before("engine.config", 0, lambda data: data["effective"].update(versions=1.5)), tmp_path) is None
    )


def test_one_request_at_a_time_is_deterministic(tmp_path):
    """Else one word would make a corrupt cell inconclusive; a program says itself what it sends at once."""

    def deny(data):
        del data["program"], data["program_digest"], data["scenario"]
        data.update(deterministic=False)

    assert judged(found_before("plan.cell", 0, deny), tmp_path) is None


def test_a_timed_sample_without_times_counts_for_nothing(tmp_path):
    whole = entries([Event(e["kind"], e["data"], e["t_ns"]) for e in original(GAIN)])
    for entry in whole:
        if entry["kind"] == "gain.sample":
            entry["data"]["ttft_s"] = []
    path = tmp_path / "recording.jsonl"
    path.write_text("".join(f"{line}\n" for line in lines_of(whole)))
    assert judge_gain(read(path)).exit_code == 3
