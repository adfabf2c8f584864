"""One rule a file: ``check(view) -> findings``. A new rule is one file and one line here."""

from __future__ import annotations

from collections.abc import Callable

from e2e.base.verdict import Finding
from e2e.judge.rules import (
    blind,
    coarse,
    complete,
    counters,
    digests,
    effective,
    exact,
    failed,
    fault,
    foreign,
    happened,
    hits,
    loads,
    preparation,
    stored,
)
from e2e.judge.view import CellView

Rule = Callable[[CellView], list[Finding]]

RULES: dict[str, Rule] = {
    module.RULE: module.check
    for module in (
        failed, complete, happened, exact, coarse, digests, stored, hits, counters, preparation, effective, loads,
        fault, foreign, blind,
    )
}  # fmt: skip
