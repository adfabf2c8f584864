"""Every reason to distrust a run: hits, counters, preparation, effective settings, failures, what is missing."""

from __future__ import annotations

import copy
from types import SimpleNamespace

import pytest
from synthetic_recording import BASELINE, CELL, CONNECTOR, KEY, Recording

from e2e.base.judgement import CellJudgement
from e2e.base.program import Cold, Send, Site
from e2e.base.verdict import Finding, Reason, Verdict
from e2e.judge import judge, merge
from e2e.judge.same_engine import asked
from e2e.report.sentences import sentence


def verdict(recording: Recording, **options) -> CellJudgement:
    (cell,) = judge(recording.build(), **options).cells
    return cell


def counters(**values):
    return lambda data: data["counters"].update(values)


def without(*names):
    return lambda data: [data["counters"].pop(name) for name in names]


def put(**values):
    return lambda data: data.update(values)


def load(**values):
    return lambda data: [each.update(values) for each in data["loads"]]


def effective(**values):
    return lambda data: data["effective"].update(values)


CASES = [
    ("metrics.delta", {"arm": "external"}, counters(external_kv_transfer=0, external_hits=0), Reason.NO_HIT),
    ("metrics.delta", {"arm": "external_again"}, counters(external_kv_transfer=0, external_hits=0), Reason.NO_HIT),
    ("metrics.delta", {"arm": "external"}, counters(external_kv_transfer=512, external_hits=512), Reason.PARTIAL_HIT),
    ("metrics.delta", {"arm": "external"}, counters(external_hits=512), Reason.SOURCES_DISAGREE),
    ("metrics.delta", {"arm": "external"}, counters(local_cache_hit=16), Reason.LOCAL_HIT_DIFFERS),
    ("metrics.delta", {"arm": "local", "cell": CELL}, counters(local_cache_hit=0), Reason.LOCAL_HIT_DIFFERS),
    ("metrics.delta", {"arm": "local", "cell": None}, counters(local_cache_hit=0), Reason.LOCAL_HIT_DIFFERS),
    ("metrics.delta", {"arm": "cold", "cell": CELL}, counters(local_cache_hit=16), Reason.COLD_NOT_COLD),
    ("metrics.delta", {"arm": "cold", "cell": None}, counters(local_cache_hit=16), Reason.COLD_NOT_COLD),
    ("metrics.delta", {"arm": "external"}, counters(prompt_tokens=9), Reason.SOURCES_DISAGREE),
    ("metrics.delta", {"arm": "external"}, counters(preemptions=1), Reason.PREEMPTED),
    ("metrics.delta", {"arm": "external"}, put(went_back=True), Reason.METRICS_RESET),
    ("metrics.delta", {"arm": "external"}, put(complete=False), Reason.COUNTERS_MISSING),
    ("metrics.delta", {"arm": "external"}, put(requests=2), Reason.COUNTERS_MISSING),
    ("metrics.delta", {"arm": "external"}, put(ttft={"sum_s": 1.0, "count": 2}), Reason.COUNTERS_MISSING),
    ("metrics.delta", {"arm": "cold"}, without("local_cache_hit"), Reason.COUNTERS_MISSING),
    ("metrics.delta", {"arm": "external"}, without("external_hits", "external_kv_transfer"), Reason.COUNTERS_MISSING),
    ("metrics.delta", {"arm": "external"}, without("preemptions"), Reason.COUNTERS_MISSING),
    ("connector.evidence", {"arm": "external"}, counters(hit_tokens=512), Reason.SOURCES_DISAGREE),
    ("connector.evidence", {"arm": "cold"}, counters(hit_tokens=512), Reason.SOURCES_DISAGREE),
    ("connector.evidence", {"arm": "external"}, without("hit_tokens"), Reason.COUNTERS_MISSING),
    ("connector.evidence", {"arm": "external"}, counters(load_failures=1), Reason.LOAD_FAILED),
    ("connector.evidence", {"arm": "external"}, load(failed=True), Reason.LOAD_FAILED),
    ("connector.evidence", {"arm": "external"}, load(storage_format="chunkwise"), Reason.EFFECTIVE_DIFFERS),
    ("connector.evidence", {"arm": "external"}, load(load="sync"), Reason.EFFECTIVE_DIFFERS),
    ("connector.evidence", {"arm": "external"}, load(overlap=False), Reason.EFFECTIVE_DIFFERS),
    ("connector.evidence", {"arm": "external"}, load(placement="index"), Reason.PLACEMENT_NOT_USED),
    ("connector.evidence", {"arm": "external"}, load(places=0), Reason.PLACEMENT_NOT_USED),
    ("connector.evidence", {"arm": "external"}, load(blocking_waits=0), Reason.NO_OVERLAP),
    ("connector.evidence", {"arm": "external"}, lambda data: data["loads"].pop(), Reason.EFFECTIVE_UNKNOWN),
    ("request.done", {"arm": "external", "prompt": 0}, put(cached_tokens=0), Reason.NO_HIT),
    ("request.done", {"arm": "external", "prompt": 1}, put(cached_tokens=512), Reason.PARTIAL_HIT),
    ("request.done", {"arm": "cold", "cell": CELL, "prompt": 1}, put(cached_tokens=512), Reason.COLD_NOT_COLD),
    ("request.done", {"arm": "external", "prompt": 1}, put(finish_reason="abort"), Reason.REQUEST_FAILED),
    ("request.done", {"arm": "external", "prompt": 1}, put(logprobs=[], top=[]), Reason.ANSWER_INCOMPLETE),
    ("request.done", {"arm": "external", "prompt": 1}, put(top=[]), Reason.ANSWER_INCOMPLETE),
    ("request.done", {}, put(logprobs=[float("nan")] * 4), Reason.ANSWER_INCOMPLETE),
    ("request.done", {}, put(token_ids=[], logprobs=[], top=[]), Reason.ANSWER_INCOMPLETE),
    ("reset.local", {"arm": "external"}, put(ok=False), Reason.RESET_REFUSED),
    ("overwrite.free", {"arm": "external_again"}, put(ok=False), Reason.NOT_OVERWRITTEN),
    ("overwrite.free", {"arm": "external"}, put(blocks=0), Reason.NOT_OVERWRITTEN),
    ("engine.config", {"engine": CONNECTOR}, effective(layout="NHD"), Reason.EFFECTIVE_DIFFERS),
    ("engine.config", {"engine": CONNECTOR}, effective(block_size=128), Reason.EFFECTIVE_DIFFERS),
    ("engine.config", {"engine": CONNECTOR}, effective(max_num_batched_tokens=2048), Reason.EFFECTIVE_DIFFERS),
    ("engine.config", {"engine": CONNECTOR}, lambda data: data["effective"].pop("layout"), Reason.EFFECTIVE_UNKNOWN),
    ("engine.config", {"engine": CONNECTOR}, effective(ranks_differ={"gpu": ["a", "b"]}), Reason.EFFECTIVE_DIFFERS),
    ("engine.config", {"engine": BASELINE}, effective(ranks_differ={"gpu": ["a", "b"]}), Reason.EFFECTIVE_DIFFERS),
    ("engine.config", {"engine": BASELINE}, effective(layout="NHD"), Reason.EFFECTIVE_DIFFERS),
    ("engine.config", {"engine": BASELINE}, effective(dtype="float32"), Reason.EFFECTIVE_DIFFERS),
    ("engine.config", {"engine": BASELINE}, effective(versions={"vllm": "0.23.0"}), Reason.EFFECTIVE_DIFFERS),
    ("expect.hit", {"engine": BASELINE, "arm": "cold", "prompt": 1}, put(digest="other"), Reason.NO_BASELINE),
    ("expect.hit", {"cell": CELL, "arm": "external", "prompt": 1}, put(digest="other"), Reason.UNSTABLE_REFERENCE),
    ("expect.hit", {"arm": "external", "prompt": 1}, put(external=0), Reason.NO_HIT),
]


@pytest.mark.parametrize(("kind", "where", "edit", "reason"), CASES)
def test_reason(kind, where, edit, reason):
    cell = verdict(Recording().change(kind, edit, **where))
    assert reason in {finding.reason for finding in cell.findings}
    assert cell.verdict.weight >= reason.verdict.weight
    assert cell.ttft.speedup is None


DROPPED = [
    ("engine.start", Reason.NOT_RUN),
    ("metrics.delta", Reason.COUNTERS_MISSING),
    ("connector.evidence", Reason.COUNTERS_MISSING),
    ("expect.hit", Reason.COUNTERS_MISSING),
    ("reset.local", Reason.RESET_REFUSED),
    ("overwrite.free", Reason.NOT_OVERWRITTEN),
    ("engine.config", Reason.EFFECTIVE_UNKNOWN),
    ("request.sent", Reason.NOT_RUN),
    ("request.done", Reason.NOT_RUN),
    ("arm.begin", Reason.NOT_RUN),
    ("arm.end", Reason.NOT_RUN),
    ("cell.begin", Reason.NOT_RUN),
    ("cell.end", Reason.NOT_RUN),
    ("plan.cell", Reason.NOT_RUN),
    ("baseline.begin", Reason.NO_BASELINE),
    ("baseline.end", Reason.NO_BASELINE),
]


@pytest.mark.parametrize(("kind", "reason"), DROPPED)
def test_missing_evidence_is_never_green(kind, reason):
    cell = verdict(Recording().drop(kind))
    assert cell.verdict is Verdict.INCONCLUSIVE
    assert reason in {finding.reason for finding in cell.findings}


def two_ranks() -> Recording:
    recording = Recording()
    for data in recording.find("engine.config"):
        data["effective"].update(ranks=2, tensor_parallel=2)
    for data in recording.find("connector.evidence"):
        data["rank"] = 0
        recording.add("connector.evidence", **{**copy.deepcopy(data), "rank": 1})
    return recording


def test_two_ranks_that_were_served_alike_pass():
    cell = verdict(two_ranks())
    assert cell.verdict is Verdict.PASS
    assert cell.hits.predicted == cell.hits.engine == cell.hits.connector


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize(
    ("edit", "reason"),
    [
        (counters(hit_tokens=512), Reason.SOURCES_DISAGREE),
        (without("hit_tokens"), Reason.COUNTERS_MISSING),
        (counters(load_failures=1), Reason.LOAD_FAILED),
        (counters(store_failures=1), Reason.STORE_FAILED),
        (load(placement="index"), Reason.PLACEMENT_NOT_USED),
        (lambda data: data["loads"].pop(), Reason.EFFECTIVE_UNKNOWN),
    ],
)
def test_what_one_rank_says_counts(rank, edit, reason):
    cell = verdict(two_ranks().change("connector.evidence", edit, arm="external", rank=rank))
    assert cell.verdict is Verdict.INCONCLUSIVE
    assert reason in {finding.reason for finding in cell.findings}


@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_that_said_nothing_is_named(rank):
    cell = verdict(two_ranks().drop("connector.evidence", arm="external", rank=rank))
    assert (cell.verdict, cell.reason) == (Verdict.INCONCLUSIVE, Reason.COUNTERS_MISSING)
    assert f"rank {rank}" in str(cell.findings[0].evidence["what"])


def test_layout_names_of_newer_vllm_are_the_same_layouts():
    recording = Recording().change("engine.config", effective(layout="LBHNC"))
    assert verdict(recording).verdict is Verdict.PASS


def test_older_vllm_counts_no_sources():
    def older(data):
        data["counters"]["local_hits"] = data["counters"].pop("local_cache_hit")
        del data["counters"]["external_kv_transfer"]

    assert verdict(Recording().change("metrics.delta", older)).verdict is Verdict.PASS


def test_a_connector_without_counters_needs_none():
    recording = Recording(counters=False, expect={"layout": "HND"}).drop("connector.evidence")
    cell = verdict(recording)
    assert (cell.verdict, cell.hits.connector) == (Verdict.PASS, None)


def test_nothing_served_is_no_hit_and_names_the_cause_first():
    recording = Recording().change("metrics.delta", counters(external_kv_transfer=0, external_hits=0))
    recording.change("request.done", put(cached_tokens=0), arm="external")
    recording.change("request.done", put(cached_tokens=0), arm="external_again")
    cell = verdict(
        recording.change("connector.evidence", lambda data: data.update(counters={"hit_tokens": 0}, loads=[]))
    )
    assert (cell.verdict, cell.reason) == (Verdict.INCONCLUSIVE, Reason.NO_HIT)
    assert cell.first_generation == "identical"


def test_a_prompt_that_can_not_hit_proves_nothing():
    cell = verdict(Recording(lengths=(100, 513, 1033), oracle="split_matched"))
    assert (cell.verdict, cell.reason) == (Verdict.INCONCLUSIVE, Reason.NO_HIT)


def test_blind_cells_count_when_strict():
    recording = Recording(blind=[{"fault_class": "axes swapped", "why": "page size equals heads"}])
    assert verdict(recording).verdict is Verdict.PASS
    assert verdict(recording, strict=True).reason is Reason.BLIND_CELL


def test_what_was_not_told_counts_when_strict():
    recording = Recording(untold=["turns", "eviction"])
    assert verdict(recording).verdict is Verdict.PASS
    cell = verdict(recording, strict=True)
    assert (cell.verdict, cell.reason) == (Verdict.INCONCLUSIVE, Reason.NOT_TRIED)
    assert cell.findings[0].evidence == {"scenarios": ["turns", "eviction"]}
    assert verdict(Recording(untold=[]), strict=True).verdict is Verdict.PASS


def test_digests_that_were_asked_for_must_be_there():
    assert verdict(Recording(digests=True)).reason is Reason.DIGEST_MISSING


@pytest.mark.parametrize(("rank", "reason"), [(1, None), (0, Reason.FAULT_NOT_FIRED), (None, Reason.FAULT_NOT_FIRED)])
def test_a_fault_planted_on_one_rank_must_fire_there(rank, reason):
    recording = Recording(fault="bit_flip_on_rank_1")
    recording.add("fault.fired", engine=CONNECTOR, cell=CELL, arm="external", fault="bit_flip", count=1, rank=rank)
    assert verdict(recording).reason is reason


def test_a_planted_fault_must_fire():
    recording = Recording(fault="bit-flip")
    assert verdict(recording).reason is Reason.FAULT_NOT_FIRED
    recording.add("fault.fired", engine=CONNECTOR, cell=CELL, arm="external", fault="bit-flip", count=1)
    assert verdict(recording).verdict is Verdict.PASS


class TestFailures:
    def failed(self, recording: Recording, engine: str, stage: str, error: str, *, after: str) -> Recording:
        at = next(
            i for i, (kind, data) in enumerate(recording.events) if kind == after and data.get("engine") == engine
        )
        data = {"engine": engine, "stage": stage, "error": error, "cause": "boom", "log_tail": ""}
        recording.events.insert(at + 1, ["engine.failed", data])
        return recording

    @pytest.mark.parametrize(
        ("stage", "error", "reason"),
        [
            ("start", "EngineRefused", Reason.ENGINE_REFUSED),
            ("run", "EngineCrashed", Reason.ENGINE_CRASHED),
            ("run", "EngineTimeout", Reason.ENGINE_HUNG),
            ("start", "Unheard", Reason.ENGINE_REFUSED),
            ("prepare", "EngineAnswer", Reason.REQUEST_FAILED),
        ],
    )
    def test_the_engine_ended_before_the_cell_did(self, stage, error, reason):
        recording = self.failed(Recording(), CONNECTOR, stage, error, after="engine.ready").drop("cell.end")
        cell = verdict(recording)
        assert (cell.verdict, cell.reason) == (Verdict.ERROR, reason)
        assert cell.findings[0].evidence["cause"] == "boom"

    def test_cells_that_never_began_on_a_failed_engine_are_errors_too(self):
        recording = Recording()
        recording.add("plan.cell", **{**recording.plan, "cell": "HND-other"})
        self.failed(recording, CONNECTOR, "run", "EngineCrashed", after="cell.begin").drop("cell.end")
        assert [cell.reason for cell in judge(recording.build()).cells] == [Reason.ENGINE_CRASHED] * 2

    def test_a_crash_after_the_cell_is_not_its_own(self):
        recording = self.failed(Recording(), CONNECTOR, "run", "EngineCrashed", after="cell.end")
        assert verdict(recording).verdict is Verdict.PASS

    def test_a_baseline_engine_that_refuses_is_an_error(self):
        recording = Recording().drop("baseline.begin").drop("baseline.end")
        self.failed(recording, BASELINE, "start", "EngineRefused", after="engine.start")
        assert verdict(recording).reason is Reason.ENGINE_REFUSED

    def test_a_request_that_failed(self):
        recording = Recording().drop("request.done", arm="external", prompt=1)
        (sent,) = recording.find("request.sent", arm="external", prompt=1)
        recording.add("request.failed", request=sent["request"], error="EngineAnswer", message="HTTP 500", status=500)
        assert verdict(recording).reason is Reason.REQUEST_FAILED

    def test_a_request_without_an_end_is_indeterminate(self):
        cell = verdict(Recording().drop("request.done", arm="external", prompt=1))
        assert cell.reason is Reason.NOT_RUN
        assert cell.findings[0].evidence["prompts"] == [1]


def test_the_last_attempt_that_ended_is_judged():
    recording = Recording().drop("cell.end")
    assert verdict(recording).reason is Reason.NOT_RUN
    recording.attempt = 2
    recording.run({})
    assert (verdict(recording).verdict, verdict(recording).attempt) == (Verdict.PASS, 2)
    recording.attempt = 3
    recording.add("plan.cell", **{**recording.plan, "attempt": 3})
    recording.add("cell.begin", cell=CELL, engine="HND.connector.3", attempt=3)
    assert verdict(recording).attempt == 2


def test_an_arm_that_ran_twice_is_ambiguous():
    recording = Recording()
    recording.arm(CONNECTOR, CELL, "external")
    assert verdict(recording).reason is Reason.NOT_RUN


def test_a_rule_that_raises_is_named_and_never_green():
    def broken(view):
        raise KeyError("gone")

    (finding,) = merge.run_rules(None, {"broken": broken})
    assert finding == Finding("broken", Reason.RULE_FAILED, {"rule": "broken", "error": "KeyError: 'gone'"})
    assert merge.verdict([finding]) == (Verdict.INCONCLUSIVE, Reason.RULE_FAILED)


def test_what_a_send_brings_along_is_what_its_loads_must_show():
    site = Site("one", settings={"placement": "index"})
    expect = {"placement": "kernel", "storage_format": "layerwise"}
    view = SimpleNamespace(plan=SimpleNamespace(expect=expect), program=SimpleNamespace(site={"one": site}.get))
    other = Send("other", "one", (0,), (Cold(),), settings={"storage_format": "chunkwise"})
    assert asked(view, site, tuple(expect)) == {"placement": "index", "storage_format": "layerwise"}
    assert asked(view, other, tuple(expect)) == {"placement": "index", "storage_format": "chunkwise"}


def test_exit_codes():
    assert judge([]).exit_code == 3
    assert judge(Recording().build()).exit_code == 0
    assert judge(Recording().drop("cell.end").build()).exit_code == 3
    crashed = Recording().drop("cell.end")
    crashed.add("engine.failed", engine=CONNECTOR, stage="run", error="EngineCrashed", cause="boom", log_tail="")
    assert judge(crashed.build()).exit_code == 4
    crashed.change("request.done", put(token_ids=[1, 2, 3, 4]), arm="external", prompt=0)
    assert judge(crashed.build()).exit_code == 1


def test_two_cells_share_a_baseline():
    recording = Recording()
    recording.add("plan.cell", **{**recording.plan, "cell": "HND-other"})
    recording.cell("HND-other")
    assert [(c.id, c.verdict, c.engine_key) for c in judge(recording.build()).cells] == [
        (CELL, Verdict.PASS, KEY),
        ("HND-other", Verdict.PASS, KEY),
    ]


def test_a_reset_that_vllm_does_not_confirm_is_shown_by_the_arm():
    """Up to vLLM 0.25 the reply to /reset_prefix_cache is empty."""
    recording = Recording()
    recording.change("reset.local", put(ok=None), arm="external")
    recording.change("reset.local", put(ok=None), arm="external_again")
    assert judge(recording.build()).cells[0].verdict.value == "pass"
    recording.change("metrics.delta", lambda data: data["counters"].pop("local_cache_hit"), arm="external")
    reasons = {finding.reason for finding in judge(recording.build()).cells[0].findings}
    assert Reason.RESET_REFUSED in reasons


OVERLAP_UNSEEN = {"fault_class": "overlap did not happen", "why": "no waits are counted"}


def untold(data):
    for load in data["loads"]:
        del load["blocking_waits"], load["pending_at_forward"]


def test_overlap_that_a_connector_never_tells_of_is_judged_by_its_answers_and_path():
    def judged(**plan):
        return judge(Recording(**plan).change("connector.evidence", untold).build()).cells[0]

    assert judged().reason is Reason.NO_OVERLAP
    cell = judged(blind=[OVERLAP_UNSEEN])
    assert (cell.verdict, cell.blind) == (Verdict.PASS, (OVERLAP_UNSEEN,))
    off = Recording(blind=[OVERLAP_UNSEEN]).change("connector.evidence", untold)
    off.change("connector.evidence", lambda data: [load.update(overlap=False) for load in data["loads"]])
    assert judge(off.build()).cells[0].reason is Reason.EFFECTIVE_DIFFERS


def test_a_blind_spot_does_not_excuse_waits_that_were_counted():
    recording = Recording(blind=[OVERLAP_UNSEEN])
    recording.change("connector.evidence", lambda data: [load.update(blocking_waits=0) for load in data["loads"]])
    assert judge(recording.build()).cells[0].reason is Reason.NO_OVERLAP


def test_a_failed_store_has_the_cause_that_the_connector_gave():
    def judged(**seen):
        recording = Recording()
        counters = {"store_failures": 180, **seen.pop("counters", {})}
        recording.change("connector.evidence", lambda data: data["counters"].update(counters), arm="cold")
        recording.change("connector.evidence", lambda data: data.update(seen), arm="cold")
        return sentence(judge(recording.build()).cells[0].findings[0])

    assert "first error: Maru save error: index 48" in judged(errors=["Maru save error: index 48", "another one"])
    assert "180 chunks found no room in its pool" in judged(counters={"no_room": 180})
    assert "room" not in judged()


def test_a_full_pool_is_named_before_the_hits_that_it_cost():
    recording = Recording()
    recording.change("connector.evidence", lambda data: data["counters"].update(store_failures=2), arm="cold")
    found = judge(recording.build()).cells[0]
    assert (found.verdict, found.reason) == (Verdict.INCONCLUSIVE, Reason.STORE_FAILED)


def test_a_connector_that_may_miss_has_shown_nothing_while_it_always_does():
    def may_miss(data):
        data["least_external"] = 0

    def missed(data):
        data["counters"].update(external_kv_transfer=0, external_hits=0)

    external = ("external", "external_again")
    recording = Recording(counters=False)
    for arm in external:
        recording.change("expect.hit", may_miss, arm=arm)
    assert verdict(recording).verdict is Verdict.PASS
    for arm in external:
        recording.change("metrics.delta", missed, arm=arm)
        recording.change("request.done", put(cached_tokens=0), arm=arm)
    assert verdict(recording).reason is Reason.NO_HIT


def test_where_nothing_need_be_served_and_nothing_was_the_connector_counts_no_hit():
    def clean_miss(recording, arm="external_again"):
        recording.change("expect.hit", put(least_external=0), arm=arm)
        recording.change(
            "metrics.delta", lambda data: data["counters"].update(external_kv_transfer=0, external_hits=0), arm=arm
        )
        recording.change("request.done", put(cached_tokens=0), arm=arm)
        return recording.change("connector.evidence", lambda data: data.update(counters={}, loads=[]), arm=arm)

    assert verdict(clean_miss(Recording())).verdict is Verdict.PASS
    unsaid = Recording().change("expect.hit", put(least_external=0), arm="external_again")
    unsaid.change("connector.evidence", lambda data: data["counters"].clear(), arm="external_again")
    assert verdict(unsaid).reason is Reason.COUNTERS_MISSING, "something was served, and it did not say so"
