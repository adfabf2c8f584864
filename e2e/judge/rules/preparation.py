"""Before each external arm: the local cache was reset, and the free blocks were overwritten with random values."""

from __future__ import annotations

from e2e.base.verdict import Finding, Reason
from e2e.judge.view import Arm, CellView

RULE = "preparation"


def check(view: CellView) -> list[Finding]:
    findings = []
    for arm in view.external_arms:
        reset, overwrite = arm.reset, arm.overwrite
        if not _was_reset(arm):
            seen = {"arm": arm.name, "tries": None if reset is None else reset["tries"]}
            findings.append(Finding(RULE, Reason.RESET_REFUSED, seen))
        if overwrite is None or overwrite["ok"] is not True or overwrite["blocks"] <= 0:
            seen = {"arm": arm.name, "blocks": None if overwrite is None else overwrite["blocks"]}
            findings.append(Finding(RULE, Reason.NOT_OVERWRITTEN, seen))
    return findings


def _was_reset(arm: Arm) -> bool:
    """vLLM up to 0.25 answers without saying whether it did: then only an arm without any local hit shows it."""
    if arm.reset is None:
        return False
    return arm.reset["ok"] is True or (arm.reset["ok"] is None and arm.counter("local_cache_hit") == 0)
