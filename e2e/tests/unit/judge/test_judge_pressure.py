"""What happened under pressure is seen in what was recorded: loads of requests that came back, reads of one step."""

from __future__ import annotations

import pytest
from stories import FIRST, PLAIN, STORED, TEXTS, served
from synthetic_digests import add_digests, packed, pages
from synthetic_recording import BLOCK, Recording

from e2e.base.program import Forget, Happened, Program, Scribble, Site
from e2e.base.verdict import Reason, Verdict
from e2e.judge import judge


def recorded(*happened: Happened) -> Recording:
    hot = served("hot", "one", *happened, at_once=2)
    program = Program((PLAIN, Site("one")), TEXTS, (*FIRST, STORED, Forget("one"), Scribble("one"), hot), "pressure")
    recording = add_digests(Recording(program=program, digests=True))
    for what in happened:  # the recording counts whatever is claimed
        recording.change("connector.evidence", lambda data, what=what.what: data["counters"].pop(what, None))
    return recording


def outcome(recording: Recording) -> tuple[Verdict, Reason | None]:
    (cell,) = judge(recording.build()).cells
    return cell.verdict, cell.reason


NOT_HAPPENED = (Verdict.INCONCLUSIVE, Reason.SCENARIO_DID_NOT_HAPPEN)
PASS = (Verdict.PASS, None)


def test_a_request_that_loads_twice_came_back():
    recording = recorded(Happened("resumed_loads"))
    assert outcome(recording) == NOT_HAPPENED
    recording.change("connector.evidence", lambda data: data["loads"].append(dict(data["loads"][0])), arm="hot")
    assert outcome(recording) == PASS


def test_loads_of_two_requests_are_none_that_came_back():
    recording = recorded(Happened("resumed_loads", 2))
    recording.change("connector.evidence", lambda data: data["loads"].append(dict(data["loads"][0])), arm="hot")
    assert outcome(recording) == NOT_HAPPENED


@pytest.mark.parametrize(("steps", "seen"), [((5, 5), PASS), ((5, 6), NOT_HAPPENED), ((None, None), NOT_HAPPENED)])
def test_reads_of_one_step_are_counted_by_their_digests(steps, seen):
    recording = recorded(Happened("reads_in_one_step", 2))
    for prompt, step in enumerate(steps):
        recording.change("digest.taken", lambda data, step=step: data.update(step=step), arm="hot", prompt=prompt)
    assert outcome(recording) == seen


@pytest.mark.parametrize(("batches", "seen"), [((1, 3), PASS), ((1, 1), NOT_HAPPENED), ((None, None), NOT_HAPPENED)])
def test_a_batch_is_what_stood_in_the_step_of_a_read(batches, seen):
    recording = recorded(Happened("batch", 2))
    for prompt, batch in enumerate(batches):
        recording.change("digest.taken", lambda data, batch=batch: data.update(batch=batch), arm="hot", prompt=prompt)
    assert outcome(recording) == seen


def test_what_resumed_requests_are_served_again_is_more_than_vllm_counts():
    recording = recorded(Happened("preemptions"))
    recording.change("connector.evidence", lambda data: data["counters"].update(hit_tokens=1536 + 256), arm="hot")
    recording.change("metrics.delta", lambda data: data["counters"].update(preemptions=1), arm="hot")
    assert outcome(recording) == PASS
    recording.change("connector.evidence", lambda data: data["counters"].update(hit_tokens=1536 - 256), arm="hot")
    assert outcome(recording)[1] is Reason.SOURCES_DISAGREE


@pytest.mark.parametrize("right", [True, False])
def test_a_resumed_request_reads_of_its_answer_too(right):
    """That is no part of the prompt, which alone was computed before; the prompt is looked at in each read."""
    recording = recorded()
    (first,) = recording.find("digest.taken", arm="hot", prompt=0)
    blocks = first["tokens"] // BLOCK + 2
    values = pages(0, blocks)
    if not right:
        values[2, 0, 1, 3] = 9
    recording.change("digest.taken", lambda data: data.update(reads=2), arm="hot", prompt=0)
    again = {**first, "nth": 2, "reads": 2, "blocks": blocks, "tokens": blocks * BLOCK, "values": packed(values)}
    recording.add("digest.taken", **again)
    assert outcome(recording) == (PASS if right else (Verdict.CORRUPT, Reason.DIGEST_DIFFERS))
