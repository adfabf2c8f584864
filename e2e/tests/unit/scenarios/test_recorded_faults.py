"""Faults that only one story shows, on real engines: its recording is corrupt by a named check, the rerun's tells only
that the fault found nothing to do, and the clean twin passes."""

from __future__ import annotations

import pytest
from recorded import recording

from e2e.base.event import Event
from e2e.base.judgement import CellJudgement
from e2e.base.program import Happened
from e2e.base.verdict import Reason, Verdict
from e2e.judge import assemble, judge
from e2e.recording.journal import read

#: (scenario, fault) -> checks that see it
CAUGHT = {
    ("crowd", "loads_exchanged"): {Reason.DIGEST_DIFFERS},
    ("preemption", "former_blocks"): {Reason.DIGEST_DIFFERS},
    ("eviction", "slot_reused"): {Reason.DIGEST_DIFFERS, Reason.TOKENS_DIFFER},
    ("full", "refused_announced"): {Reason.DIGEST_DIFFERS},
    ("turns", "answer_one_late"): {Reason.LOGPROBS_DIFFER},
    ("long_prompt", "step_slots_stored"): {Reason.DIGEST_DIFFERS, Reason.LOGPROBS_DIFFER},
    ("zero_delay", "announced_early"): {Reason.DIGEST_DIFFERS, Reason.TOKENS_DIFFER},
    ("abort", "freed_while_loading"): {Reason.DIGEST_DIFFERS, Reason.TOKENS_DIFFER},
    ("abort", "read_when_stored"): {Reason.DIGEST_DIFFERS, Reason.TOKENS_DIFFER},
    ("partial", "stored_from_hit"): {Reason.TOKENS_DIFFER},
    ("broken_server", "failure_kept_quiet"): {Reason.DIGEST_DIFFERS, Reason.TOKENS_DIFFER},
    ("broken_server", "checksum_ignored"): {Reason.DIGEST_DIFFERS, Reason.TOKENS_DIFFER},
    ("broken_server", "last_block_reported"): {Reason.DIGEST_DIFFERS, Reason.TOKENS_DIFFER},
}
STORIES = tuple(dict.fromkeys(scenario for scenario, _ in CAUGHT))
#: The event of their story is a load that fails, and they hide it.
HIDE = {"failure_kept_quiet", "checksum_ignored"}
#: What does wrong in the rerun, too, where no harm comes of it.
HARMLESS_THERE = {"announced_early"}
#: Counters of vLLM that tell of an event by another name.
COUNTED_AS = {"local": ("local_cache_hit", "local_hits"), "external": ("external_kv_transfer", "external_hits")}


def judged(name: str) -> CellJudgement:
    (cell,) = judge(read(recording(name))).cells
    return cell


@pytest.mark.parametrize(("scenario", "fault"), CAUGHT)
def test_the_story_shows_it(scenario, fault):
    cell = judged(f"{scenario}-{fault}")
    assert (cell.verdict, cell.fault) == (Verdict.CORRUPT, fault)
    by_name = {finding.reason for finding in cell.findings if finding.verdict is Verdict.CORRUPT}
    assert by_name == CAUGHT[scenario, fault]
    found = {finding.reason for finding in cell.findings}
    assert not {Reason.FAULT_NOT_FIRED, Reason.ENGINE_CRASHED} & found
    assert (Reason.SCENARIO_DID_NOT_HAPPEN in found) is (fault in HIDE)


def test_a_soak_meets_what_strikes_one_chunk_in_a_hundred():
    """Units of 64 tokens, so that a short one meets some; its ``turns`` was served a unit more than it said, then."""
    cell = judged("soak-rare_bit_flip")
    wrong = [finding for finding in cell.findings if finding.verdict is Verdict.CORRUPT]
    assert {finding.reason for finding in wrong} == {Reason.DIGEST_DIFFERS}
    assert {finding.evidence["wrong_pages"] for finding in wrong} == {1}
    (silent,) = judged("replay-rare_bit_flip").findings
    assert silent.reason is Reason.FAULT_NOT_FIRED


def test_an_engine_that_is_killed_leaves_what_it_told_too_early():
    """It took the count of its fault along, so that the scoreboard calls this undecided."""
    cell = judged("struck-announced_early")
    wrong = {
        (finding.reason, finding.evidence["arm"]) for finding in cell.findings if finding.verdict is Verdict.CORRUPT
    }
    assert {(Reason.DIGEST_DIFFERS, "stored"), (Reason.TOKENS_DIFFER, "loaded")} < wrong
    assert Reason.FAULT_NOT_FIRED in {finding.reason for finding in cell.findings}
    assert (judged("struck").verdict, judged("struck").findings) == (Verdict.PASS, ())


@pytest.mark.parametrize("fault", HARMLESS_THERE)
def test_the_rerun_passes_though_it_did_wrong(fault):
    cell = judged(f"replay-{fault}")
    assert (cell.verdict, cell.fault, cell.findings) == (Verdict.PASS, fault, ())
    fired = [event for event in read(recording(f"replay-{fault}")) if event.kind == "fault.fired"]
    assert sum(event["count"] for event in fired) > 0


@pytest.mark.parametrize("fault", [fault for _, fault in CAUGHT if fault not in HARMLESS_THERE])
def test_the_rerun_never_comes_to_it(fault):
    cell = judged(f"replay-{fault}")
    assert (cell.verdict, cell.fault) == (Verdict.INCONCLUSIVE, fault)
    assert {finding.reason for finding in cell.findings} == {Reason.FAULT_NOT_FIRED}


@pytest.mark.parametrize("scenario", STORIES)
def test_the_clean_twin_passes_and_its_event_happened(scenario):
    cell = judged(scenario)
    assert (cell.verdict, cell.findings) == (Verdict.PASS, ())


@pytest.mark.parametrize("scenario", STORIES)
def test_a_story_without_its_event_shows_nothing(scenario):
    """The same recordings, with every count of the event taken out."""
    events = read(recording(scenario))
    (plan,) = [event.data for event in events if event.kind == "plan.cell"]
    program = assemble.program(plan)
    claimed = {claim.what for send in program.sends for claim in send.claims if isinstance(claim, Happened)}
    assert claimed
    for what in sorted(claimed - {"answered", "refused"}):  # no counter tells of those, but the request itself
        events = read(recording(scenario))
        for event in events:
            _without(event, what)
        (cell,) = judge(events).cells
        assert cell.verdict is Verdict.INCONCLUSIVE
        assert Reason.SCENARIO_DID_NOT_HAPPEN in {finding.reason for finding in cell.findings}, what


def _without(event: Event, what: str) -> None:
    data = event.data
    if event.kind == "metrics.delta":
        data["counters"] |= dict.fromkeys(COUNTED_AS.get(what, ()), 0)
    if event.kind == "step.seen" and what == data["what"]:
        data["count"] = 0
    if event.kind == "engine.config" and what == "prefill_steps":
        data["effective"].pop("max_num_batched_tokens")
    if what == "reads_in_one_step" and event.kind == "digest.taken":
        data.pop("step", None)
    elif what == "resumed_loads" and event.kind == "connector.evidence":
        data["loads"] = list({load["request"]: load for load in data["loads"]}.values())
    elif event.kind in ("connector.evidence", "metrics.delta") and what in data["counters"]:
        data["counters"][what] = 0
