"""Did the engine run with the requested setting, as read in the worker, and the baseline engine with the same?"""

from __future__ import annotations

from e2e.base.verdict import Finding, Reason
from e2e.judge.same_engine import disagreements, plain
from e2e.judge.view import CellView

RULE = "effective"
#: Settings of an engine as opposed to those of a load, see ``loads``.
OF_ENGINE = ("layout", "block_size", "attention_backend", "dtype", "kv_cache_dtype", "tensor_parallel")


def check(view: CellView) -> list[Finding]:
    effective = view.connector.effective
    if effective is None:
        return [Finding(RULE, Reason.EFFECTIVE_UNKNOWN, {"engine": view.connector.engine, "axis": "all"})]
    expect = {axis: view.plan.expect[axis] for axis in OF_ENGINE if axis in view.plan.expect}
    if view.plan.oracle == "aligned":
        expect["max_num_batched_tokens"] = view.plan.step
    findings = []
    for axis, wanted in expect.items():
        if axis not in effective:
            if axis != "max_num_batched_tokens":
                findings.append(Finding(RULE, Reason.EFFECTIVE_UNKNOWN, {"axis": axis, "expected": wanted}))
        elif plain(effective[axis]) != plain(wanted):
            seen = {"axis": axis, "expected": wanted, "found": effective[axis]}
            findings.append(Finding(RULE, Reason.EFFECTIVE_DIFFERS, seen))
    return findings + _ranks(view) + _baseline(view)


def _ranks(view: CellView) -> list[Finding]:
    return [
        Finding(RULE, Reason.EFFECTIVE_DIFFERS, {"engine": side.role, "axis": name, "by_rank": values})
        for side in view.sides
        for name, values in ((side.effective or {}).get("ranks_differ") or {}).items()
    ]


def _baseline(view: CellView) -> list[Finding]:
    if view.baseline is None:
        return []
    if view.baseline.effective is None:
        return [Finding(RULE, Reason.EFFECTIVE_UNKNOWN, {"engine": view.baseline.engine, "axis": "all"})]
    return [
        Finding(RULE, Reason.EFFECTIVE_DIFFERS, {"axis": name, "baseline": other, "found": own})
        for name, (own, other) in disagreements(view).items()
    ]
