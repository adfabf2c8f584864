"""What must hold whatever the recording looks like."""

from __future__ import annotations

import json
import struct

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from synthetic_recording import CELL, Recording

from e2e.base.event import ARMS, Event
from e2e.base.verdict import Finding, Reason, Verdict
from e2e.judge import judge, merge

HEALTHY = Recording().build()
MEANINGLESS = ("note", "run.begin", "run.end", "engine.ready", "engine.stop")

json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.floats(allow_nan=False) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)
often = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def judged(events):
    """The verdicts; also checks that every figure is JSON-like and that nothing green has findings."""
    judgement = judge(events)
    for cell in judgement.cells:
        json.dumps([dict(finding.evidence) for finding in cell.findings])
        assert (cell.verdict is Verdict.PASS) == (not cell.findings) == (cell.reason is None)
        assert cell.ttft.speedup is None or cell.verdict is Verdict.PASS
    return judgement


@often
@given(st.permutations(HEALTHY))
def test_order_of_events_does_not_matter_where_nothing_failed(events):
    assert judged(events).cells[0].verdict is Verdict.PASS


@often
@given(st.integers(0, len(HEALTHY)))
def test_a_truncated_recording_is_judged_and_never_green_before_its_end(length):
    cells = judged(HEALTHY[:length]).cells
    ended = any(event.kind == "cell.end" for event in HEALTHY[:length])
    assert all((cell.verdict is Verdict.PASS) == ended for cell in cells)


@often
@given(st.data())
def test_garbled_values_never_raise(data):
    events = list(HEALTHY)
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(events) - 1))
        event = events[at]
        key = data.draw(st.sampled_from(sorted(event.data)))
        events[at] = Event(event.kind, {**event.data, key: data.draw(json_values)}, event.t_ns)
    judged(events)


@often
@given(st.data())
def test_garbled_inner_values_never_raise(data):
    events = list(HEALTHY)
    tables = [i for i, e in enumerate(events) if any(isinstance(v, (dict, list)) and v for v in e.data.values())]
    at = data.draw(st.sampled_from(tables))
    fresh = json.loads(json.dumps(dict(events[at].data)))
    inner = data.draw(st.sampled_from([v for v in fresh.values() if isinstance(v, (dict, list)) and v]))
    place = data.draw(st.sampled_from(sorted(inner) if isinstance(inner, dict) else range(len(inner))))
    inner[place] = data.draw(json_values)
    events[at] = Event(events[at].kind, fresh, events[at].t_ns)
    judged(events)


@often
@given(st.sets(st.integers(0, len(HEALTHY) - 1), min_size=1, max_size=5))
def test_no_event_can_be_left_out(left_out):
    """Whatever is gone, nothing turns green for want of it (and nothing corrupt either)."""
    gone = [HEALTHY[i] for i in left_out]
    cells = judged([event for i, event in enumerate(HEALTHY) if i not in left_out]).cells
    green = all(e.kind in MEANINGLESS for e in gone)
    assert cells
    assert all((cell.verdict is Verdict.PASS) == green for cell in cells)
    assert all(cell.verdict is not Verdict.CORRUPT for cell in cells)


@given(st.sampled_from(ARMS), st.sampled_from([CELL, None]))
def test_no_arm_can_be_left_out(arm, cell):
    requests = {e["request"] for e in HEALTHY if e.kind == "request.sent" and (e["arm"], e["cell"]) == (arm, cell)}
    kept = [
        event
        for event in HEALTHY
        if (event.data.get("arm"), event.data.get("cell")) != (arm, cell) and event.data.get("request") not in requests
    ]
    if len(kept) < len(HEALTHY):
        assert judged(kept).cells[0].verdict is Verdict.INCONCLUSIVE


@often
@given(
    st.sampled_from(["external", "external_again"]), st.integers(0, 2), st.integers(0, 3), st.integers(0, 51),
    st.booleans(),
)  # fmt: skip
def test_one_flipped_bit_of_one_logprob_is_corrupt(arm, prompt, position, bit, top):
    def flip(data):
        where = data["top"][position] if top else data["logprobs"]
        key = sorted(where)[-1] if top else position
        (bits,) = struct.unpack("<q", struct.pack("<d", where[key]))
        (where[key],) = struct.unpack("<d", struct.pack("<q", bits ^ (1 << bit)))

    recording = Recording().change("request.done", flip, arm=arm, prompt=prompt)
    (cell,) = judged(recording.build()).cells
    assert (cell.verdict, cell.reason) == (Verdict.CORRUPT, Reason.LOGPROBS_DIFFER)
    assert (cell.oracle.first_difference["prompt"], cell.oracle.first_difference["position"]) == (prompt, position)


findings = st.builds(
    Finding,
    st.sampled_from(["exact", "hits"]),
    st.sampled_from(list(Reason)),
    st.dictionaries(st.sampled_from(["prompt", "arm", "found"]), json_values, max_size=3),
)


@given(st.lists(findings, max_size=6).flatmap(lambda found: st.tuples(st.just(found), st.permutations(found))))
def test_merging_is_independent_of_order_and_the_worst_wins(pair):
    found, shuffled = pair
    assert merge.in_order(found) == merge.in_order(shuffled)
    verdict, reason = merge.verdict(found)
    assert verdict.weight == max((finding.verdict.weight for finding in found), default=0)
    assert reason is None or reason.verdict is verdict


@given(st.lists(findings, max_size=4), findings)
def test_more_findings_never_make_it_better(found, more):
    assert merge.verdict([*found, more])[0].weight >= merge.verdict(found)[0].weight
