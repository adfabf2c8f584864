"""Engines that refused, crashed or hung, and requests that were answered with an error."""

from __future__ import annotations

from e2e.base.verdict import Finding, Reason
from e2e.judge.view import CellView, Failure

RULE = "failed"
BY_ERROR = {
    "EngineRefused": Reason.ENGINE_REFUSED,
    "EngineCrashed": Reason.ENGINE_CRASHED,
    "EngineTimeout": Reason.ENGINE_HUNG,
    "EngineAnswer": Reason.REQUEST_FAILED,
}
BY_STAGE = {"start": Reason.ENGINE_REFUSED, "run": Reason.ENGINE_CRASHED}
#: vLLM's finish reasons of a request that it gave up.
GIVEN_UP = ("abort", "error")


def check(view: CellView) -> list[Finding]:
    findings = [Finding(RULE, _reason(failure), _evidence(failure)) for failure in view.failures]
    for sent in view.sent:
        for failure in sent.arm.failures:
            reason = BY_ERROR.get(failure.error, Reason.REQUEST_FAILED)
            findings.append(Finding(RULE, reason, _evidence(failure)))
        for prompt, answer in sent.arm.answers.items():
            if answer.finish_reason in GIVEN_UP:
                engine = sent.side.engines[-1].name if sent.side.engines else ""
                seen = {"engine": engine, "arm": sent.send.name, "prompt": prompt, "cause": answer.finish_reason}
                findings.append(Finding(RULE, Reason.REQUEST_FAILED, seen))
    return findings


def _reason(failure: Failure) -> Reason:
    return BY_ERROR.get(failure.error) or BY_STAGE.get(failure.stage, Reason.ENGINE_CRASHED)


def _evidence(failure: Failure) -> dict[str, object]:
    seen = {"engine": failure.engine, "stage": failure.stage, "error": failure.error, "cause": failure.message}
    if failure.prompt is not None:
        seen |= {"arm": failure.arm, "prompt": failure.prompt}
    return seen
