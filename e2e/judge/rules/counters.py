"""Are the counters there, whole and trustworthy? A missing series is never taken for zero."""

from __future__ import annotations

from e2e.base.verdict import Finding, Reason
from e2e.judge.view import ARMS_OF, CONNECTOR, EXTERNAL_ARMS, Arm, CellView, Side

RULE = "counters"


def check(view: CellView) -> list[Finding]:
    findings = []
    for side in view.sides:
        for name in ARMS_OF[side.role]:
            if name in side.arms:
                findings.extend(_arm(view, side, side.arms[name]))
    return findings


def _arm(view: CellView, side: Side, arm: Arm) -> list[Finding]:
    where = {"engine": side.role, "arm": arm.name}
    missing = _missing(view, side, arm)
    findings = [Finding(RULE, Reason.COUNTERS_MISSING, {**where, "what": missing})] if missing else []
    if arm.metrics is None:
        return findings
    if arm.metrics["went_back"]:
        findings.append(Finding(RULE, Reason.METRICS_RESET, where))
    if arm.counter("preemptions"):
        findings.append(Finding(RULE, Reason.PREEMPTED, {**where, "found": arm.counter("preemptions")}))
    findings.extend(_prompt_tokens(view, arm, where))
    if arm.load_failed:
        failed = arm.connector_failures("load_failures") or sum(bool(load.get("failed")) for load in arm.loads)
        recomputed = view.plan.load_failure_policy == "recompute"
        findings.append(
            Finding(
                RULE,
                Reason.LOAD_FAILED,
                {**where, "found": failed, "recomputed": recomputed, "errors": arm.connector_errors},
            )
        )
    return findings


def _missing(view: CellView, side: Side, arm: Arm) -> list[str]:
    connector = side.role == CONNECTOR
    missing = [] if arm.predicted("local") is not None else ["expect.hit"]
    if connector and view.plan.counters and (silent := _silent(view, arm)):
        missing.append(silent)
    if arm.metrics is None:
        return [*missing, "metrics"]
    ttft = arm.metrics["ttft"] or {}
    if not arm.metrics["complete"] or ttft.get("count") != len(arm.answers) or "sum_s" not in ttft:
        missing.append("time_to_first_token_seconds")
    if arm.metrics["requests"] != len(arm.answers):
        missing.append("requests")
    if arm.local is None:
        missing.append("prompt_tokens_by_source{local_cache_hit}")
    if connector and arm.external is None:
        missing.append("prompt_tokens_by_source{external_kv_transfer}")
    if arm.counter("preemptions") is None:
        missing.append("num_preemptions")
    return missing


def _silent(view: CellView, arm: Arm) -> str:
    """What the connector did not tell. Before the first hit there may be no counter of hits yet, but in an external arm
    there must be."""
    hits, told = "connector hit_tokens", [evidence.get("rank") for evidence in arm.evidence]
    if not told or (arm.name in EXTERNAL_ARMS and None in arm.connector_counter("hit_tokens")):
        return hits
    lacking = [] if None in told else sorted(set(range(view.ranks)) - {*told})
    return f"{hits} of rank {', '.join(map(str, lacking))}" if lacking else ""


def _prompt_tokens(view: CellView, arm: Arm, where: dict[str, object]) -> list[Finding]:
    """vLLM must have counted the tokens of our prompts and nobody else's: an attached engine may have other users."""
    found = arm.counter("prompt_tokens")
    sent = [view.plan.lengths[prompt] for prompt in arm.answers if prompt in view.prompts]
    if found is None or len(sent) != len(arm.answers) or found == sum(sent):
        return []
    seen = {**where, "source": "vLLM prompt_tokens", "expected": sum(sent), "found": found}
    return [Finding(RULE, Reason.SOURCES_DISAGREE, seen)]
