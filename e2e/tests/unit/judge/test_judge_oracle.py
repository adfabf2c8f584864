"""The exact oracle in both forms, the coarse rule, and what each difference is called."""

from __future__ import annotations

import pytest
from synthetic_recording import BASELINE, CELL, CONNECTOR, Recording, answer

from e2e.base.judgement import CellJudgement
from e2e.base.verdict import Reason, Verdict
from e2e.judge import judge

ODD = {"lengths": (523, 781, 1031), "oracle": "split_matched"}


def verdict(recording: Recording, **options) -> CellJudgement:
    (cell,) = judge(recording.build(), **options).cells
    return cell


def reasons(cell: CellJudgement) -> set[Reason]:
    return {finding.reason for finding in cell.findings}


def other_token(data) -> None:
    data["token_ids"][2] += 5
    data["logprobs"][2] -= 1.5


def nudged(data) -> None:
    data["logprobs"][2] += 2**-20


def replaced(by: dict):
    return lambda data: data.update(by)


def test_healthy_aligned_run_passes_and_repeats_the_first_generation():
    cell = verdict(Recording())
    assert (cell.id, cell.verdict, cell.reason, cell.findings) == (CELL, Verdict.PASS, None, ())
    assert cell.first_generation == "identical"
    assert (cell.oracle.kind, cell.oracle.tokens_equal, cell.oracle.max_logprob_diff) == ("aligned", True, 0.0)
    assert (cell.hits.predicted, cell.hits.engine, cell.hits.connector) == (6144, 6144, 6144)
    assert (cell.ttft.speedup, cell.ttft.claimed_speedup) == (pytest.approx(4.0), None)
    assert (cell.ttft.server_cold_s, cell.ttft.server_external_s) == (0.6, 0.1)


@pytest.mark.parametrize("options", [ODD, {"lengths": (257, 523, 781), "oracle": "split_matched", "step": None}])
def test_split_noise_between_cold_and_rerun_is_no_failure(options):
    cell = verdict(Recording(**options))
    assert (cell.verdict, cell.first_generation, cell.oracle.kind) == (Verdict.PASS, "split noise", "split_matched")


@pytest.mark.parametrize("options", [{}, ODD])
@pytest.mark.parametrize("arm", ["external", "external_again"])
@pytest.mark.parametrize(("edit", "reason"), [(other_token, Reason.TOKENS_DIFFER), (nudged, Reason.LOGPROBS_DIFFER)])
def test_a_differing_rerun_is_corrupt(options, arm, edit, reason):
    cell = verdict(Recording(**options).change("request.done", edit, arm=arm, prompt=1))
    assert (cell.verdict, cell.reason, cell.first_generation) == (Verdict.CORRUPT, reason, "not reproduced")
    difference = cell.oracle.first_difference
    assert (difference["prompt"], difference["position"], difference["arm"]) == (1, 2, arm)
    assert cell.oracle.tokens_equal is (reason is Reason.LOGPROBS_DIFFER)
    assert cell.oracle.max_logprob_diff > 0
    assert (cell.ttft.speedup, cell.ttft.claimed_speedup) == (None, pytest.approx(4.0))


def test_a_difference_in_the_top_logprobs_alone_is_corrupt():
    def edit(data):
        data["top"][3]["token_id:1018"] += 2**-20

    cell = verdict(Recording().change("request.done", edit, arm="external", prompt=1))
    assert cell.reason is Reason.LOGPROBS_DIFFER
    assert cell.oracle.first_difference["kind"] == "top logprobs"


def test_tokens_that_differ_later_outweigh_logprobs_that_differ_first():
    def edit(data):
        nudged(data)
        data["token_ids"][3] += 5

    cell = verdict(Recording().change("request.done", edit, arm="external", prompt=0))
    assert (cell.reason, cell.oracle.first_difference["position"]) == (Reason.TOKENS_DIFFER, 3)


def test_a_shorter_answer_differs():
    def edit(data):
        for key in ("token_ids", "logprobs", "top"):
            data[key].pop()

    cell = verdict(Recording().change("request.done", edit, arm="external", prompt=0))
    assert (cell.reason, cell.oracle.first_difference["found"]) == (Reason.TOKENS_DIFFER, None)


@pytest.mark.parametrize("options", [{}, ODD])
def test_all_arms_wrong_in_the_same_way_are_betrayed_by_the_baseline(options):
    recording = Recording(**options)
    for arm in ("cold", "local", "external", "external_again"):
        recording.change("request.done", nudged, cell=CELL, arm=arm, prompt=1)
    cell = verdict(recording)
    assert (cell.verdict, cell.reason) == (Verdict.CORRUPT, Reason.FIRST_ANSWER_DIFFERS)
    assert cell.first_generation == "not reproduced"


def test_engines_that_do_not_compute_alike_are_not_compared():
    """Seen on two cores: vLLM gave the engine with a connector two threads and the baseline one."""
    recording = Recording()
    for engine, threads in ((BASELINE, 1), (CONNECTOR, 2)):
        recording.change("engine.config", lambda d, n=threads: d["effective"].update(threads=n), engine=engine)
    for arm in ("cold", "local", "external", "external_again"):
        recording.change("request.done", nudged, cell=CELL, arm=arm, prompt=1)
    cell = verdict(recording)
    assert (cell.verdict, cell.reason) == (Verdict.INCONCLUSIVE, Reason.EFFECTIVE_DIFFERS)
    recording.change("request.done", nudged, cell=CELL, arm="external", prompt=1)
    assert verdict(recording).reason is Reason.LOGPROBS_DIFFER


@pytest.mark.parametrize("arm", ["cold", "local"])
def test_a_reference_that_does_not_repeat_is_inconclusive(arm):
    cell = verdict(Recording().change("request.done", nudged, cell=None, arm=arm, prompt=1))
    assert (cell.verdict, cell.reason) == (Verdict.INCONCLUSIVE, Reason.UNSTABLE_REFERENCE)


def test_without_a_baseline_the_own_cold_and_local_arms_must_repeat():
    recording = Recording().change("request.done", nudged, cell=CELL, arm="local", prompt=1)
    recording.drop("baseline.begin").drop("baseline.end")
    assert {Reason.UNSTABLE_REFERENCE, Reason.NO_BASELINE} <= reasons(verdict(recording))


def garbage_for_all(recording: Recording, served) -> None:
    """As DecodeBenchConnector does: every request, the cold one too, is served and answered from noise."""
    for prompt, length in enumerate(recording.lengths):
        wrong = answer(prompt + 40)
        for arm in ("cold", "local", "external", "external_again"):
            hit = {**wrong, "cached_tokens": served(length)}
            recording.change("request.done", replaced(hit), cell=CELL, arm=arm, prompt=prompt)
    total = sum(map(served, recording.lengths))

    def count(data):
        data["counters"] |= {"external_kv_transfer": total, "external_hits": total}

    recording.change("metrics.delta", count, cell=CELL, arm="cold")


@pytest.mark.parametrize("lengths", [(513, 1025, 1537), (529, 1041)])
def test_a_connector_that_serves_garbage_to_the_cold_arm_too_is_corrupt(lengths):
    oracle = "aligned" if lengths[0] == 513 else "split_matched"
    recording = Recording(lengths=lengths, chunk=1, oracle=oracle, counters=False)
    garbage_for_all(recording, lambda tokens: tokens - 1)
    cell = verdict(recording)
    assert (cell.verdict, cell.reason) == (Verdict.CORRUPT, Reason.FIRST_ANSWER_DIFFERS)
    assert {Reason.COLD_NOT_COLD, Reason.TOKENS_DIFFER} <= reasons(cell)
    assert cell.first_generation == "not reproduced"


def test_a_partial_hit_that_was_split_differently_is_not_called_corrupt():
    """Prompt 1 is served 256 of 1024 tokens: its steps are others than those of any other arm."""

    def edit(data):
        data.update(answer(1, 256), cached_tokens=256)

    def count(data):
        data["counters"]["external_kv_transfer"] -= 768
        data["counters"]["external_hits"] -= 768

    recording = Recording().change("request.done", edit, arm="external", prompt=1)
    cell = verdict(recording.change("metrics.delta", count, arm="external"))
    assert (cell.verdict, cell.reason) == (Verdict.INCONCLUSIVE, Reason.PARTIAL_HIT)
    assert Reason.NO_EXACT_REFERENCE in reasons(cell)
    assert (cell.oracle.kind, cell.first_generation) == ("coarse", "not reproduced")


def test_a_load_that_failed_and_was_recomputed_is_not_called_corrupt():
    def fail(data):
        data["loads"][1]["failed"] = True

    recording = Recording().change("connector.evidence", fail, arm="external")
    cell = verdict(recording.change("request.done", replaced(answer(1, 5)), arm="external", prompt=1))
    assert (cell.verdict, cell.reason) == (Verdict.INCONCLUSIVE, Reason.LOAD_FAILED)


@pytest.mark.parametrize(("kept", "wrong"), [(0, True), (0, False), (None, True)])
def test_what_was_recomputed_from_a_step_s_end_on_must_be_right(kept, wrong):
    """A connector that tells how many tokens stand after a failed load tells which steps were taken again."""
    recording = Recording()
    (sent,) = recording.find("request.sent", arm="external", prompt=1)

    def fail(data):
        data["loads"][1] |= {"failed": True, "request": sent["request"], **({} if kept is None else {"kept": kept})}

    recording.change("connector.evidence", fail, arm="external")
    if wrong:
        recording.change("request.done", replaced(answer(0)), arm="external", prompt=1)
    corrupt = Reason.TOKENS_DIFFER in reasons(verdict(recording))
    assert corrupt is (kept == 0 and wrong)


def test_nobody_waits_for_a_layer_of_a_load_that_failed():
    recording = Recording()

    def fail(data):
        data["loads"] = [{**load, "overlap": True, "blocking_waits": 0, "failed": True} for load in data["loads"]]

    def land(data):
        data["loads"] = [{**load, "failed": False} for load in data["loads"]]

    recording.change("plan.cell", lambda data: data["expect"].update(overlap="on"))
    recording.change("connector.evidence", fail, arm="external")
    assert not any(f.evidence.get("arm") == "external" for f in overlaps(verdict(recording)))
    recording.change("connector.evidence", land, arm="external")
    assert any(f.evidence.get("arm") == "external" for f in overlaps(verdict(recording)))


def overlaps(cell):
    return [finding for finding in cell.findings if finding.reason is Reason.NO_OVERLAP]


def test_garbage_after_a_load_that_failed_is_corrupt_where_the_engine_recomputes_nothing():
    def fail(data):
        data["loads"][1]["failed"] = True

    recording = Recording(load_failure_policy="fail").change("connector.evidence", fail, arm="external")
    assert verdict(recording).reason is Reason.LOAD_FAILED
    cell = verdict(recording.change("request.done", replaced(answer(0)), arm="external", prompt=1))
    assert (cell.verdict, cell.reason) == (Verdict.CORRUPT, Reason.TOKENS_DIFFER)
    assert Reason.LOAD_FAILED in reasons(cell)


def test_without_cached_tokens_the_counters_vouch_for_what_was_served():
    recording = Recording(**ODD).change("request.done", replaced({"cached_tokens": None}))
    assert verdict(recording).verdict is Verdict.PASS
    recording.change("metrics.delta", lambda data: data["counters"].update(external_kv_transfer=256), arm="external")
    assert verdict(recording).oracle.kind == "coarse"


def test_a_zero_that_vllm_leaves_out_is_zero():
    recording = Recording().change("request.done", replaced({"cached_tokens": None}), arm="cold")
    assert verdict(recording).verdict is Verdict.PASS


class TestCoarse:
    """Nothing is comparable bit for bit: two at a time share their steps."""

    def loose(self) -> Recording:
        return Recording(**ODD, at_once=2)

    def test_equal_answers_are_still_no_proof(self):
        cell = verdict(self.loose())
        assert (cell.verdict, cell.reason) == (Verdict.INCONCLUSIVE, Reason.NO_EXACT_REFERENCE)
        assert cell.oracle.kind == "coarse"

    @pytest.mark.parametrize(("lead", "expected"), [(0.01, Verdict.INCONCLUSIVE), (1.5, Verdict.CORRUPT)])
    def test_the_first_other_token_must_be_a_near_tie(self, lead, expected):
        def tie(data):
            data["top"][2]["token_id:1017"] = data["logprobs"][2] - lead

        recording = self.loose().change("request.done", tie, cell=None, prompt=1)
        cell = verdict(recording.change("request.done", other_token, arm="external", prompt=1))
        assert cell.verdict is expected
        assert (Reason.BEYOND_NOISE in reasons(cell)) is (expected is Verdict.CORRUPT)

    def test_a_token_that_the_baseline_did_not_even_consider_is_beyond_noise(self):
        def edit(data):
            data["token_ids"][2] = 77

        cell = verdict(self.loose().change("request.done", edit, arm="external", prompt=1))
        assert (cell.verdict, cell.reason) == (Verdict.CORRUPT, Reason.BEYOND_NOISE)

    def test_larger_noise_of_the_baseline_allows_more(self):
        def noisy(data):
            data["logprobs"][0] += 1.0

        recording = self.loose().change("request.done", other_token, arm="external", prompt=1)
        recording.change("request.done", noisy, cell=None, arm="local", prompt=0)
        assert verdict(recording).reason is Reason.NO_EXACT_REFERENCE


def test_several_at_once_compare_reruns_of_one_engine_only():
    """Batch-invariant mode: cold runs share their steps, so only equal reruns on one engine are exact."""
    recording = Recording(**ODD, at_once=8)
    assert verdict(recording).reason is Reason.NO_EXACT_REFERENCE
    recording.change("engine.config", lambda data: data["effective"].update(batch_invariant=True))
    assert verdict(recording).verdict is Verdict.PASS
    recording.change("request.done", nudged, cell=CELL, arm="cold", prompt=1)
    assert verdict(recording).verdict is Verdict.PASS
    recording.change("request.done", nudged, cell=CELL, arm="external", prompt=1)
    assert verdict(recording).reason is Reason.LOGPROBS_DIFFER
