"""Was everything run that was planned, once, to its end? Without this, missing evidence could look like health."""

from __future__ import annotations

from e2e.base.verdict import Finding, Reason
from e2e.judge import compare
from e2e.judge.view import ARMS_OF, BASELINE, Arm, CellView, Side

RULE = "complete"


def check(view: CellView) -> list[Finding]:
    findings = []
    if not (view.begun and view.ended):
        findings.append(Finding(RULE, Reason.NOT_RUN, {"what": "cell.end" if view.begun else "cell.begin"}))
    if view.begun and not view.connector.started:
        findings.append(Finding(RULE, Reason.NOT_RUN, {"what": "engine.start"}))
    if not view.plan.lengths:
        findings.append(Finding(RULE, Reason.NOT_RUN, {"what": "prompts"}))
    if not view.plan.baseline:
        pass  # an engine of somebody else: said as a blind spot of the plan
    elif view.baseline is None:
        findings.append(Finding(RULE, Reason.NO_BASELINE))
    elif not view.baseline.finished:
        findings.append(Finding(RULE, Reason.NO_BASELINE, {"what": "baseline.end"}))
    for side in view.sides:
        reason = Reason.NO_BASELINE if side.role == BASELINE else Reason.NOT_RUN
        for name in ARMS_OF[side.role]:
            findings.extend(_arm(view, side, name, reason))
    return findings


def _arm(view: CellView, side: Side, name: str, reason: Reason) -> list[Finding]:
    arm = side.arms.get(name)
    if arm is None:
        return [Finding(RULE, reason, {"engine": side.role, "arm": name, "what": "arm"})]
    findings = []
    for what, wrong in _gaps(view, arm).items():
        if wrong:
            prompts = wrong if isinstance(wrong, list) else None
            findings.append(Finding(RULE, reason, {"engine": side.role, "arm": name, "what": what, "prompts": prompts}))
    unusable = [prompt for prompt in sorted(arm.answers) if not arm.answers[prompt].usable]
    if unusable:
        seen = {"engine": side.role, "arm": name, "prompts": unusable}
        findings.append(Finding(RULE, Reason.ANSWER_INCOMPLETE, seen))
    others = [p for p in view.prompts if p in arm.expected and not compare.same_prompt(view, side, name, p)]
    if others:
        wrong = Reason.NO_BASELINE if side.role == BASELINE else Reason.UNSTABLE_REFERENCE
        seen = {"engine": side.role, "arm": name, "what": "other prompt", "prompts": others}
        findings.append(Finding(RULE, wrong, seen))
    return findings


def _gaps(view: CellView, arm: Arm) -> dict[str, object]:
    failed = {failure.prompt for failure in arm.failures}
    return {
        "arm.begin": arm.begun == 0,
        "arm.end": arm.ended == 0,
        "arm repeated": arm.begun > 1 or arm.ended > 1,
        "request repeated": sorted(set(arm.repeated)),
        "request indeterminate": sorted(set(arm.indeterminate)),
        "request not sent": [
            p for p in view.prompts if p not in arm.answers and p not in arm.indeterminate and p not in failed
        ],
        "prompt not planned": sorted(prompt for prompt in arm.answers if prompt not in view.prompts),
    }
