"""Are the counters there, whole and trustworthy? A missing series is never taken for zero."""

from __future__ import annotations

from e2e.base.program import Span
from e2e.base.verdict import Finding, Reason
from e2e.judge.view import CellView, Sent

RULE = "counters"


def check(view: CellView) -> list[Finding]:
    return [finding for sent in view.sent for finding in _arm(view, sent)]


def _arm(view: CellView, sent: Sent) -> list[Finding]:
    arm, where = sent.arm, sent.place
    missing = _missing(view, sent)
    findings = [Finding(RULE, Reason.COUNTERS_MISSING, {**where, "what": missing})] if missing else []
    if arm.metrics is None:
        return findings
    if arm.metrics["went_back"]:
        findings.append(Finding(RULE, Reason.METRICS_RESET, where))
    if arm.counter("preemptions") and not sent.asked_for("preemptions"):
        findings.append(Finding(RULE, Reason.PREEMPTED, {**where, "found": arm.counter("preemptions")}))
    findings.extend(_prompt_tokens(view, sent))
    if arm.load_failed and not sent.asked_for("load_failures"):
        failed = arm.connector_total("load_failures") or sum(bool(load.get("failed")) for load in arm.loads)
        recomputed = view.policy(sent.side) == "recompute"
        findings.append(
            Finding(
                RULE,
                Reason.LOAD_FAILED,
                {**where, "found": failed, "recomputed": recomputed, "errors": arm.connector_errors},
            )
        )
    return findings


def _missing(view: CellView, sent: Sent) -> list[str]:
    arm, connector = sent.arm, sent.side.site.connector
    missing = [] if arm.predicted("local") is not None else ["expect.hit"]
    if sent.beside.cut:
        return missing
    if connector and view.plan.counters and (silent := _silent(view, sent)):
        missing.append(silent)
    if arm.crowded:
        return [*missing, *_untold(sent)]
    if arm.metrics is None:
        return [*missing, "metrics"]
    ttft = arm.metrics["ttft"] or {}
    if not arm.metrics["complete"] or not _of_all(sent, ttft.get("count")) or "sum_s" not in ttft:
        missing.append("time_to_first_token_seconds")
    if not _of_all(sent, arm.metrics["requests"]):
        missing.append("requests")
    if arm.local is None:
        missing.append("prompt_tokens_by_source{local_cache_hit}")
    if connector and arm.external is None and not (sent.side.site.in_use and not sent.send.external):
        missing.append("prompt_tokens_by_source{external_kv_transfer}")
    if arm.counter("preemptions") is None:
        missing.append("num_preemptions")
    return missing


def _untold(sent: Sent) -> list[str]:
    """What nobody tells of requests on an engine that others use beside them: what each was served, and by whom."""
    answers = sent.arm.answers.values()
    if not sent.side.reports_cached and any(answer.cached is None for answer in answers):
        return ["prompt_tokens_details.cached_tokens"]
    local = sent.arm.predicted("local")
    both = sent.send.external and local is not None and local.most > 0
    return ["prompt_tokens_by_source{external_kv_transfer}"] if both else []


def _of_all(sent: Sent, count: object) -> bool:
    """Of all requests; one whose client went away may count or not."""
    answered = len(sent.arm.answers)
    return isinstance(count, int) and answered <= count <= answered + len(sent.arm.gone)


def _silent(view: CellView, sent: Sent) -> str:
    """What the connector did not tell. Before the first hit there may be no counter of hits yet, but where there was
    one, or was to be, there must be."""
    predicted = sent.arm.predicted("external")
    due = sent.send.external and not (predicted and predicted.least == sent.arm.external == 0)
    hits, told = "connector hit_tokens", [evidence.get("rank") for evidence in sent.arm.evidence]
    if not told or (due and None in sent.arm.connector_counter("hit_tokens")):
        return hits
    lacking = [] if None in told else sorted(set(range(view.ranks(sent.side))) - {*told})
    return f"{hits} of rank {', '.join(map(str, lacking))}" if lacking else ""


def _prompt_tokens(view: CellView, sent: Sent) -> list[Finding]:
    """vLLM must have counted the tokens of our prompts and nobody else's: an attached engine may have other users."""
    found = sent.arm.counter("prompt_tokens")
    answered, gone = ([_tokens(view, sent, p) for p in prompts] for prompts in (sent.arm.answers, sent.arm.gone))
    if found is None or None in answered + gone:
        return []
    expected = Span(sum(answered), sum(answered + gone))
    if expected.least <= found <= expected.most:
        return []
    seen = {**sent.place, "source": "vLLM prompt_tokens", "expected": expected.most, "found": found}
    return [Finding(RULE, Reason.SOURCES_DISAGREE, seen)]


def _tokens(view: CellView, sent: Sent, prompt: int) -> int | None:
    """None for a prompt that was not planned. How long an answer became that stands in it, only its sender knows."""
    if prompt not in view.prompts:
        return None
    text = view.program.texts[prompt]
    if text.follows is None:
        return text.tokens
    return sent.arm.expected[prompt].tokens if prompt in sent.arm.expected else None
