"""Digests of the KV, where they were asked for: all there? Comparing them is not done yet."""

from __future__ import annotations

from e2e.base.verdict import Finding, Reason
from e2e.judge.view import EXTERNAL_ARMS, CellView

RULE = "digests"
#: arm -> what may have been hashed in it
WANTED = {"cold": ("computed",), **{arm: ("loaded", "read") for arm in EXTERNAL_ARMS}}


def check(view: CellView) -> list[Finding]:
    if not view.plan.digests:
        return []
    taken = {(d["arm"], d["prompt"]) for d in view.digests if d["when"] in WANTED.get(d["arm"], ())}
    findings = []
    for arm in WANTED:
        missing = [prompt for prompt in view.prompts if (arm, prompt) not in taken]
        if missing:
            findings.append(Finding(RULE, Reason.DIGEST_MISSING, {"arm": arm, "prompts": missing}))
    return findings


def vouch(view: CellView, arm: str, prompt: int) -> bool:
    """Do equal digests prove the load of this answer, so that no exact reference is needed?"""
    return False
