"""Hits, token for token: the prediction equals what vLLM counts by source, per request and what the connector counts.

vLLM's counters are the scheduler's belief (they rise even when the load fails), so agreement is needed, not enough.
"""

from __future__ import annotations

from e2e.base.verdict import Finding, Reason
from e2e.judge.view import EXTERNAL_ARMS, Arm, CellView, Side

RULE = "hits"


def check(view: CellView) -> list[Finding]:
    findings = []
    for side in view.sides:
        for arm in side.arms.values():
            findings.extend(_local(side, arm))
            findings.extend(_external(side, arm))
            findings.extend(_requests(side, arm))
    for arm in view.connector.arms.values():
        findings.extend(_connector(view, arm))
    return findings


def _local(side: Side, arm: Arm) -> list[Finding]:
    expected, found = arm.predicted("local"), arm.local
    if expected is None or found is None or expected == found:
        return []
    reason = Reason.COLD_NOT_COLD if arm.name == "cold" else Reason.LOCAL_HIT_DIFFERS
    return [_finding(reason, side, arm, "vLLM", expected, found)]


def _external(side: Side, arm: Arm) -> list[Finding]:
    expected = arm.predicted("external")
    if expected is None:
        return []
    findings = []
    unserved = [
        prompt for prompt, hit in sorted(arm.expected.items()) if arm.name in EXTERNAL_ARMS and not hit.external
    ]
    if unserved:
        seen = {"engine": side.role, "arm": arm.name, "source": "prediction", "found": 0, "prompts": unserved}
        findings.append(Finding(RULE, Reason.NO_HIT, seen))
    counted = {name: arm.counter(name) for name in ("external_kv_transfer", "external_hits")}
    known = {name: value for name, value in counted.items() if value is not None}
    if len(set(known.values())) > 1:
        findings.append(Finding(RULE, Reason.SOURCES_DISAGREE, {"engine": side.role, "arm": arm.name, **known}))
    found = arm.external
    if found is not None and found != expected:
        findings.append(_finding(_why(arm, found), side, arm, "vLLM", expected, found))
    elif found == 0 and arm.name in EXTERNAL_ARMS and not unserved:
        findings.append(_finding(Reason.NO_HIT, side, arm, "vLLM", expected, found))
    return findings


def _why(arm: Arm, found: int) -> Reason:
    if arm.name == "cold":
        return Reason.COLD_NOT_COLD
    if arm.name == "local":
        return Reason.LOCAL_HIT_DIFFERS
    return Reason.PARTIAL_HIT if found else Reason.NO_HIT


def _requests(side: Side, arm: Arm) -> list[Finding]:
    """``cached_tokens`` of each request: local and external together, never split."""
    findings = []
    for prompt, answer in sorted(arm.answers.items()):
        hit = arm.expected.get(prompt)
        if hit is None or (answer.cached is None and not side.reports_cached):
            continue
        expected, found = hit.local + hit.external, answer.cached or 0
        if expected != found:
            seen = {"engine": side.role, "arm": arm.name, "prompt": prompt, "source": "request"}
            findings.append(Finding(RULE, _why(arm, found), {**seen, "expected": expected, "found": found}))
    return findings


def _connector(view: CellView, arm: Arm) -> list[Finding]:
    """The connector's own counters, where the adapter says that it has some: every rank is served every token."""
    counted, unsaid = arm.external, None if arm.name in EXTERNAL_ARMS else 0
    hits = [unsaid if told is None else told for told in arm.connector_counter("hit_tokens")]
    wrong = [found for found in hits if found not in (None, counted)]
    if not view.plan.counters or counted is None or not wrong:
        return []
    return [_finding(Reason.SOURCES_DISAGREE, view.connector, arm, "connector", counted, wrong[0])]


def _finding(reason: Reason, side: Side, arm: Arm, source: str, expected: int, found: int) -> Finding:
    seen = {"engine": side.role, "arm": arm.name, "source": source, "expected": expected, "found": found}
    return Finding(RULE, reason, seen)
