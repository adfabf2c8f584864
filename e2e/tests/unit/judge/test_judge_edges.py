"""Answers that become prompts, steps of a site's own, and clients that leave: what the judge makes of them."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest
from synthetic_recording import Recording

from e2e.base.connector import Abilities, HitRule
from e2e.base.program import Cold, Program
from e2e.base.verdict import Reason, Verdict
from e2e.judge import judge
from e2e.scenarios.sized import Sized
from e2e.scenarios.table import SCENARIOS

CELL = Sized(lengths=(513, 1033), rule=HitRule(256), block_size=16, step=512, answer=4)


def told(name: str) -> Program:
    return SCENARIOS[name].program(CELL)


def verdict(recording: Recording):
    (cell,) = judge(recording.build()).cells
    return cell.verdict, {finding.reason for finding in cell.findings}


def other_answer(data: dict) -> None:
    data["logprobs"][1] -= 0.25


@pytest.mark.parametrize("name", ["turns", "partial", "zero_delay"])
def test_a_healthy_story_passes(name):
    recording = Recording(program=told(name))
    steps = {site.name: site.step or CELL.step for site in told(name).sites}
    recording.change("engine.config", lambda data: data["effective"].update(max_num_batched_tokens=min(steps.values())))
    assert len({*steps.values()}) == 1, "one step of all engines"
    assert verdict(recording) == (Verdict.PASS, set())


@pytest.mark.parametrize("name", ["turns", "partial"])
def test_another_answer_after_a_load_is_corrupt(name):
    program = told(name)
    for send in program.sends:
        if send.external:
            recording = Recording(program=program).change("request.done", other_answer, arm=send.name, cell=CELL_ID)
            assert verdict(recording)[0] is Verdict.CORRUPT, send.name


CELL_ID = "HND-layerwise-overlap_on-kernel"


def test_what_was_generated_is_not_what_a_prefill_computes():
    """Both are served, or compute, a multiple of a step: and yet the KV of an answer comes out of other steps."""
    program = told("turns")
    plain = program.send(("baseline", "next"))
    steps = tuple(
        msgspec.structs.replace(step, claims=(Cold(),)) if step is plain else step for step in program.steps
    )  # fmt: skip
    recording = Recording(program=msgspec.structs.replace(program, steps=steps))
    recording.change("request.done", other_answer, arm="next", cell=None)
    assert Reason.LOGPROBS_DIFFER not in verdict(recording)[1]
    assert verdict(recording)[0] is Verdict.PASS, "its own engine's cache served the same"


@pytest.mark.parametrize(("step", "reasons"), [(328, set()), (512, {Reason.EFFECTIVE_DIFFERS})])
def test_prefill_steps_are_those_of_the_engine_that_ran(step, reasons):
    recording = Recording(program=told("long_prompt"))
    recording.change("engine.config", lambda data: data["effective"].update(max_num_batched_tokens=step))
    found = verdict(recording)[1]
    assert reasons <= found
    assert (Reason.SCENARIO_DID_NOT_HAPPEN in found) is (step == 512)


def left(recording: Recording, arm: str, **counters: int) -> None:
    """Its only client went away before the first token."""
    (sent,) = recording.find("request.sent", arm=arm)
    recording.drop("request.done", arm=arm)
    recording.add("request.failed", request=sent["request"], error="ClientGone", message="left", status=None)
    counters = {"external_kv_transfer": 0, "prompt_tokens": 0, "external_hits": 0, **counters}
    recording.change("metrics.delta", lambda data: data["counters"].update(counters), arm=arm)
    recording.change(
        "metrics.delta", lambda data: data.update(requests=0, ttft={"sum_s": 0.0, "count": 0}, complete=True), arm=arm
    )  # fmt: skip


@pytest.mark.parametrize(("counted", "disagree"), [(0, False), (1024, False), (1025, True)])
def test_what_was_looked_up_for_a_client_that_left_may_count_or_not(counted, disagree):
    recording = Recording(program=told("abort"))
    left(recording, "storing")
    left(recording, "loading", external_hits=counted)
    told_by = {"hit_tokens": counted} if counted else {}
    recording.change("connector.evidence", lambda data: data["counters"].update(told_by), arm="loading")
    assert (Reason.SOURCES_DISAGREE in verdict(recording)[1]) is disagree


def test_a_client_that_did_not_leave_shows_nothing():
    recording = Recording(program=told("abort"))
    recording.change("connector.evidence", lambda data: data["counters"].update(aborted_loads=0), arm="loading")
    assert Reason.SCENARIO_DID_NOT_HAPPEN in verdict(recording)[1]


ADAPTERS = [(None, False, True), ("H200", False, False), ("H200", True, True)]


@pytest.mark.parametrize(("gpu", "invariant", "corrupt"), ADAPTERS)
def test_kernels_of_adapters_do_not_repeat_themselves_on_a_gpu(gpu, invariant, corrupt):
    """Seen on an H200: without any fault, an adapter's cold answers of two engines differ from the third layer on."""
    abilities = Abilities(salted=True, survives_restart=True, lora=True)
    recording = Recording(program=SCENARIOS["identity"].program(replace(CELL, abilities=abilities)))
    sent = [data for kind, data in recording.events if kind == "request.sent" and ".connector." in data["engine"]]
    requests = {data["request"] for data in sent if data["arm"].startswith("lora_1")}
    assert requests
    for kind, data in recording.events:
        if kind == "engine.config":
            data["effective"] |= {"batch_invariant": invariant} | ({"gpu": gpu} if gpu else {})
        elif kind == "request.done" and data["request"] in requests:
            other_answer(data)
    assert (verdict(recording)[0] is Verdict.CORRUPT) is corrupt
