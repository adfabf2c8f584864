"""``Forget`` and ``Scribble`` before a Send: the local cache was reset, and the free blocks were overwritten."""

from __future__ import annotations

from e2e.base.program import Forget, Scribble, Send, Start
from e2e.base.verdict import Finding, Reason
from e2e.judge.view import Arm, CellView

RULE = "preparation"


def check(view: CellView) -> list[Finding]:
    findings: list[Finding] = []
    pending: set[tuple[str, type]] = set()
    for step in view.program.flat:
        if isinstance(step, (Forget, Scribble)):
            pending.add((step.site, type(step)))
        elif isinstance(step, (Start, Send)):
            asked = {kind for site, kind in pending if site == step.site}
            pending -= {(step.site, kind) for kind in asked}
            sent = view.of(step.where) if isinstance(step, Send) else None
            if sent is None:
                continue  # afresh, or missing, which ``complete`` says
            if Forget in asked and not _was_reset(sent.arm):
                tries = None if sent.arm.reset is None else sent.arm.reset["tries"]
                findings.append(Finding(RULE, Reason.RESET_REFUSED, {**view.place(sent), "tries": tries}))
            if Scribble in asked and not _was_overwritten(sent.arm):
                blocks = None if sent.arm.overwrite is None else sent.arm.overwrite["blocks"]
                findings.append(Finding(RULE, Reason.NOT_OVERWRITTEN, {**view.place(sent), "blocks": blocks}))
    return findings


def _was_reset(arm: Arm) -> bool:
    """vLLM up to 0.25 answers without saying whether it did: then only an arm without any local hit shows it."""
    if arm.reset is None:
        return False
    return arm.reset["ok"] is True or (arm.reset["ok"] is None and arm.counter("local_cache_hit") == 0)


def _was_overwritten(arm: Arm) -> bool:
    return arm.overwrite is not None and arm.overwrite["ok"] is True and arm.overwrite["blocks"] > 0
