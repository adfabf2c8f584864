"""Did the connector store what it was given? A full pool is named, before the missed hits that follow from it."""

from __future__ import annotations

from e2e.base.verdict import Finding, Reason
from e2e.judge.view import CellView

RULE = "stored"


def check(view: CellView) -> list[Finding]:
    failed = {arm.name: arm.connector_counter("store_failures") for arm in view.connector.arms.values()}
    return [
        Finding(RULE, Reason.STORE_FAILED, {"arm": name, "chunks": count, "cure": "give it a larger pool, or empty it"})
        for name, count in failed.items()
        if count
    ]
