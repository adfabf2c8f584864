"""Did the connector store what it was given? A full pool, or its own first error, is named before the missed hits that
follow from it."""

from __future__ import annotations

from e2e.base.verdict import Finding, Reason
from e2e.judge.view import CellView

RULE = "stored"


def check(view: CellView) -> list[Finding]:
    findings = []
    for sent in view.sent:
        arm = sent.arm
        asked = not sent.side.site.connector or sent.asked_for("store_failures", "no_room")
        if not asked and (failed := arm.connector_total("store_failures")):
            seen = {**view.place(sent), "failed": failed, "no_room": arm.connector_total("no_room")}
            findings.append(Finding(RULE, Reason.STORE_FAILED, {**seen, "errors": arm.connector_errors}))
    return findings
