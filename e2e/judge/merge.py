"""Findings of all rules -> one verdict. Worst wins, causes stand before what they cause, order does not matter."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from e2e.base.verdict import Finding, Reason, Verdict
from e2e.judge.rules import RULES, Rule
from e2e.judge.view import CellView

#: Among findings of one weight, these come first: the others often follow from them.
CAUSES = (
    Reason.FIRST_ANSWER_DIFFERS, Reason.NOT_RUN, Reason.FAULT_NOT_FIRED, Reason.SCENARIO_DID_NOT_HAPPEN,
    Reason.METRICS_RESET, Reason.PREEMPTED,
    Reason.STORE_FAILED, Reason.LOAD_FAILED, Reason.RESET_REFUSED, Reason.COLD_NOT_COLD, Reason.NO_HIT,
    Reason.PARTIAL_HIT, Reason.LOSSY_BY_DECLARATION,
)  # fmt: skip
_ORDER = {reason: place for place, reason in enumerate((*CAUSES, *(r for r in Reason if r not in CAUSES)))}


def run_rules(view: CellView, rules: Mapping[str, Rule] = RULES) -> list[Finding]:
    findings: list[Finding] = []
    for name, check in rules.items():
        try:
            findings.extend(check(view))
        except Exception as error:  # a rule that stumbles over odd evidence has not judged it: never green
            findings.append(rule_failed(name, error))
    return findings


def rule_failed(name: str, error: Exception) -> Finding:
    return Finding(name, Reason.RULE_FAILED, {"rule": name, "error": f"{type(error).__name__}: {error}"})


def in_order(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Worst first, then causes, then by rule and evidence; the same whatever the order in which they came."""
    return tuple(sorted(findings, key=_place))


def _place(finding: Finding) -> tuple[object, ...]:
    seen = finding.evidence
    prompt = seen.get("prompt")
    return (
        -finding.verdict.weight,
        _ORDER[finding.reason],
        prompt if isinstance(prompt, int) else -1,
        str(seen.get("arm", "")),
        finding.rule,
        repr(sorted(seen.items(), key=lambda item: str(item[0]))),
    )


def verdict(findings: Iterable[Finding]) -> tuple[Verdict, Reason | None]:
    first = next(iter(in_order(findings)), None)
    return (Verdict.PASS, None) if first is None else (first.verdict, first.reason)
