"""Broken connectors of e2e/tests/cases on real engines: the rerun shows them, its four arms alone did not."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import takewhile

import pytest
from recorded import recording

from e2e.base.event import ARMS, Event
from e2e.base.judgement import CellJudgement
from e2e.base.program import Forget, Program, Scribble, Send, plainly, program_of
from e2e.base.verdict import Reason, Verdict
from e2e.judge import judge
from e2e.recording.journal import read

#: Case -> Sends whose answer or KV is wrong.
WRONG = {
    "mixed_offset": {"external_third", "afterwards"},
    "stray_write": {"external_third", "afterwards"},
    "unchained": {"afterwards"},
    "third_load": {"beginning", "external_third", "afterwards"},
}


def events(case: str) -> list[Event]:
    return read(recording(f"case-{case}"))


def judged(said: Iterable[Event]) -> CellJudgement:
    (cell,) = judge(said).cells
    return cell


def arms_alone(said: list[Event]) -> list[Event]:
    """The same run without what its program sends beside the four arms."""
    sent = {event["request"]: event["arm"] for event in said if event.kind == "request.sent"}

    def kept(event: Event) -> bool:
        arm = sent.get(str(event.data.get("request")), event.data.get("arm"))
        return arm is None or arm in ARMS

    return [_planned(event) if event.kind == "plan.cell" else event for event in said if kept(event)]


def _planned(event: Event) -> Event:
    program = program_of(event["program"])
    (*told, last) = [send for send in program.sends if send.name in ARMS]
    left = [*takewhile(lambda step: step is not last, program.steps), last]
    steps = tuple(step for step in left if step in told or step is last or isinstance(step, (Forget, Scribble)))
    assert all(isinstance(step, (Send, Forget, Scribble)) for step in program.steps)
    alone = Program(program.sites, program.texts, steps, program.scenario)
    return replace(event, data={**event.data, "program": plainly(alone), "program_digest": alone.digest})


@pytest.mark.parametrize("case", WRONG)
def test_the_rerun_shows_it(case):
    cell = judged(events(case))
    assert cell.verdict is Verdict.CORRUPT
    assert cell.reason in (Reason.TOKENS_DIFFER, Reason.LOGPROBS_DIFFER)
    found = [finding for finding in cell.findings if finding.verdict is Verdict.CORRUPT]
    assert {finding.evidence["arm"] for finding in found} <= WRONG[case]


@pytest.mark.parametrize("case", WRONG)
def test_its_four_arms_alone_did_not(case):
    cell = judged(arms_alone(events(case)))
    assert (cell.verdict, cell.findings) == (Verdict.PASS, ())


def test_keys_without_an_identity_are_not_isolated_and_nothing_worse():
    cell = judged(events("no_identity"))
    assert (cell.verdict, cell.reason) == (Verdict.INCONCLUSIVE, Reason.NOT_ISOLATED)
    assert {finding.evidence["arm"] for finding in cell.findings} == {"other_salt"}


def test_the_right_twin_passes():
    cell = judged(events("good"))
    assert (cell.verdict, cell.findings) == (Verdict.PASS, ())
    assert cell.replays == 2 * 3 + 1
