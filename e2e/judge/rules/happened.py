"""``Happened``: what a Send is to provoke was seen; else it shows nothing about it."""

from __future__ import annotations

from e2e.base.program import Happened
from e2e.base.verdict import Finding, Reason
from e2e.judge.view import Arm, CellView

RULE = "happened"


def check(view: CellView) -> list[Finding]:
    findings = []
    for sent in view.sent:
        for claim in sent.send.claims:
            if isinstance(claim, Happened):
                found = _counted(sent.arm, claim.what)
                if found < claim.least:
                    seen = {**sent.place, "what": claim.what, "expected": claim.least, "found": found}
                    findings.append(Finding(RULE, Reason.SCENARIO_DID_NOT_HAPPEN, seen))
    return findings


def _counted(arm: Arm, what: str) -> int:
    served = {"local": arm.local, "external": arm.external}.get(what)
    return max(served or 0, arm.counter(what) or 0, arm.connector_total(what), arm.seen.get(what, 0))
