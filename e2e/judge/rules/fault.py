"""A planted fault proves that it fired; else its cell says nothing about what the rig can see."""

from __future__ import annotations

from e2e.base.fault import parted
from e2e.base.verdict import Finding, Reason
from e2e.judge.view import CellView

RULE = "fault"


def check(view: CellView) -> list[Finding]:
    if view.plan.fault is None:
        return []
    fault, rank = parted(view.plan.fault)
    fired = [data for data in view.fired if data["fault"] == fault and data["count"]]
    if any(rank in (None, data.get("rank")) for data in fired):
        return []
    return [Finding(RULE, Reason.FAULT_NOT_FIRED, {"fault": view.plan.fault})]
