"""Before each external arm: the local cache was reset, and the free blocks were overwritten with random values."""

from __future__ import annotations

from e2e.base.verdict import Finding, Reason
from e2e.judge.view import CellView

RULE = "preparation"


def check(view: CellView) -> list[Finding]:
    findings = []
    for arm in view.external_arms:
        reset, overwrite = arm.reset, arm.overwrite
        if reset is None or reset["ok"] is not True:
            seen = {"arm": arm.name, "tries": None if reset is None else reset["tries"]}
            findings.append(Finding(RULE, Reason.RESET_REFUSED, seen))
        if overwrite is None or overwrite["ok"] is not True or not overwrite["blocks"]:
            seen = {"arm": arm.name, "blocks": None if overwrite is None else overwrite["blocks"]}
            findings.append(Finding(RULE, Reason.NOT_OVERWRITTEN, seen))
    return findings
