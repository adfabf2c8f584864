"""With --strict, a cell that can't see a class of fault is no evidence of its absence."""

from __future__ import annotations

from e2e.base.verdict import Finding, Reason
from e2e.judge.view import CellView

RULE = "blind"


def check(view: CellView) -> list[Finding]:
    return [Finding(RULE, Reason.BLIND_CELL, spot) for spot in view.plan.blind] if view.strict else []
