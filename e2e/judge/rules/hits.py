"""``Cold``, ``Served`` and ``Missed``, token for token: the prediction equals what vLLM counts by source, per request
and what the connector counts.

vLLM's counters are the scheduler's belief (they rise even when the load fails), so agreement is needed, not enough.
"""

from __future__ import annotations

from e2e.base.program import Cold, Missed, Span
from e2e.base.verdict import Finding, Reason
from e2e.judge.view import CellView, Sent

RULE = "hits"


def check(view: CellView) -> list[Finding]:
    findings = []
    for sent in view.sent:
        findings.extend(_local(sent))
        findings.extend(_external(sent))
        findings.extend(_requests(sent))
        if sent.side.site.connector:
            findings.extend(_connector(view, sent))
    return findings + _never(view)


def _never(view: CellView) -> list[Finding]:
    """A connector that may miss at times has shown nothing as long as it did so each time."""
    counted = [
        (sent, expected, sent.arm.external) for sent in view.external if (expected := sent.arm.predicted("external"))
    ]
    if not counted or any(found != 0 or expected.least for _, expected, found in counted):
        return []
    sent, expected, found = counted[0]
    return [_finding(Reason.NO_HIT, sent, "vLLM", expected, found)]


def _local(sent: Sent) -> list[Finding]:
    expected, found = sent.arm.predicted("local"), sent.arm.local
    if expected is None or found is None or _within(expected, found):
        return []
    return [_finding(_unserved(sent) or Reason.LOCAL_HIT_DIFFERS, sent, "vLLM", expected, found)]


def _external(sent: Sent) -> list[Finding]:
    arm, external = sent.arm, sent.send.external
    expected = arm.predicted("external")
    if expected is None:
        return []
    findings = []
    unserved = [prompt for prompt, hit in sorted(arm.expected.items()) if external and not hit.external.most]
    if unserved:
        seen = {**sent.place, "source": "prediction", "found": 0, "prompts": unserved}
        findings.append(Finding(RULE, Reason.NO_HIT, seen))
    counted = {name: arm.counter(name) for name in ("external_kv_transfer", "external_hits")}
    known = {name: value for name, value in counted.items() if value is not None}
    if known and max(known.values()) - min(known.values()) > _unsure(sent):
        findings.append(Finding(RULE, Reason.SOURCES_DISAGREE, {**sent.place, **known}))
    found = arm.external
    if found is not None and not _within(expected, found):
        findings.append(_finding(_why(sent, found), sent, "vLLM", expected, found))
    return findings


def _unserved(sent: Sent) -> Reason | None:
    """Why a hit is a finding where there must be none."""
    if sent.send.claim(Cold):
        return Reason.COLD_NOT_COLD
    return Reason.NOT_ISOLATED if sent.send.claim(Missed) else None


def _why(sent: Sent, found: int) -> Reason:
    by_connector = Reason.PARTIAL_HIT if found else Reason.NO_HIT
    return _unserved(sent) or (by_connector if sent.send.external else Reason.LOCAL_HIT_DIFFERS)


def _requests(sent: Sent) -> list[Finding]:
    """``cached_tokens`` of each request: local and external together, never split."""
    findings = []
    for prompt, answer in sorted(sent.arm.answers.items()):
        hit = sent.arm.expected.get(prompt)
        if hit is None or (answer.cached is None and not sent.side.reports_cached):
            continue
        found = answer.cached or 0
        if not _within(hit.both, found):
            seen = {**sent.place, "prompt": prompt, "source": "request", **_of(hit.both), "found": found}
            findings.append(Finding(RULE, _why(sent, found), seen))
    return findings


def _connector(view: CellView, sent: Sent) -> list[Finding]:
    """The connector's own counters, where the adapter says that it has some: every rank is served every token. What a
    preempted request is served when it comes back, vLLM counts for no request."""
    counted, unsaid = sent.arm.external, None if sent.send.external else 0
    hits = [unsaid if told is None else told for told in sent.arm.connector_counter("hit_tokens")]
    if not view.plan.counters or counted is None:
        return []
    resumed, most = bool(sent.arm.counter("preemptions")), counted + _unsure(sent)
    wrong = [found for found in hits if found is not None and (found < counted or (found > most and not resumed))]
    if not wrong:
        return []
    return [_finding(Reason.SOURCES_DISAGREE, sent, "connector", Span(counted, counted), wrong[0])]


def _unsure(sent: Sent) -> int:
    """Tokens that one counts when a request is looked up, and another with a first token that nobody waited for. Of a
    load between steps that was to fail, and did, vLLM takes back what it had believed."""
    failed = bool(sent.arm.load_failed) and sent.asked_for("load_failures")
    return sum(hit.external.most for prompt, hit in sent.arm.expected.items() if failed or prompt in sent.arm.gone)


def _within(span: Span, found: int) -> bool:
    return span.least <= found <= span.most


def _of(expected: Span) -> dict[str, object]:
    """``expected`` are the most, where it may be fewer ``least`` the least."""
    least = {} if expected.least == expected.most else {"least": expected.least}
    return {"expected": expected.most, **least}


def _finding(reason: Reason, sent: Sent, source: str, expected: Span, found: int) -> Finding:
    return Finding(RULE, reason, {**sent.place, "source": source, **_of(expected), "found": found})
