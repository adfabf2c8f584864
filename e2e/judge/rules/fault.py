"""A planted fault proves that it fired; else its cell says nothing about what the rig can see."""

from __future__ import annotations

from e2e.base.verdict import Finding, Reason
from e2e.judge.view import CellView

RULE = "fault"


def check(view: CellView) -> list[Finding]:
    fault = view.plan.fault
    if fault is None or any(fired["fault"] == fault and fired["count"] for fired in view.fired):
        return []
    return [Finding(RULE, Reason.FAULT_NOT_FIRED, {"fault": fault})]
