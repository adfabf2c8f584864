"""The exact oracle: answers that computed the same steps are equal bit for bit, tokens and logprobs."""

from __future__ import annotations

from e2e.base.verdict import Finding, Reason
from e2e.judge import compare
from e2e.judge.view import BASELINE, EXTERNAL_ARMS, CellView

RULE = "exact"


def check(view: CellView) -> list[Finding]:
    findings = []
    for prompt in view.prompts:
        shaken = compare.unstable(view, prompt)
        if shaken is not None:
            role = (view.baseline or view.connector).role
            seen = compare.evidence(shaken, prompt=prompt, role=role, arm="local", reference=f"{role} cold")
            findings.append(Finding(RULE, Reason.UNSTABLE_REFERENCE, seen))
            continue
        findings.extend(_first_answer(view, prompt))
        findings.extend(_external(view, prompt))
    return findings


def _first_answer(view: CellView, prompt: int) -> list[Finding]:
    """The connector's cold and local arms against the baseline engine's."""
    findings = []
    for arm in ("cold", "local"):
        if view.connector.answer(arm, prompt) is None:
            continue
        references = compare.exact_references(view, view.connector, arm, prompt)
        findings.extend(
            _differs(view, arm, prompt, [r for r in references if r.role == BASELINE], Reason.FIRST_ANSWER_DIFFERS)
        )
    return findings


def _external(view: CellView, prompt: int) -> list[Finding]:
    findings = []
    for arm in EXTERNAL_ARMS:
        if view.connector.answer(arm, prompt) is None:
            continue
        references = compare.exact_references(view, view.connector, arm, prompt)
        findings.extend(_differs(view, arm, prompt, references, None))
    return findings


def _differs(view: CellView, arm: str, prompt: int, references, reason: Reason | None) -> list[Finding]:
    """One finding, against the first reference that differs: one difference is enough, more of them only repeat it."""
    found = view.connector.answer(arm, prompt)
    for reference in sorted(references, key=lambda r: (r.role != BASELINE, r.arm)):
        if bool(reference.answer.top) != bool(found.top):
            seen = {"prompt": prompt, "engine": view.connector.role, "arm": arm, "what": "top logprobs"}
            return [Finding(RULE, Reason.ANSWER_INCOMPLETE, seen)]
        difference = compare.first_difference(reference.answer, found)
        if difference is not None:
            by_kind = Reason.TOKENS_DIFFER if difference.kind == "tokens" else Reason.LOGPROBS_DIFFER
            seen = compare.evidence(
                difference, prompt=prompt, role=view.connector.role, arm=arm, reference=reference.name
            )
            return [Finding(RULE, reason or by_kind, seen)]
    return []
