"""Did the engine run with the requested setting, as read in the worker, and the baseline engine with the same?"""

from __future__ import annotations

from e2e.base.verdict import Finding, Reason
from e2e.judge.view import CellView

RULE = "effective"
#: Settings of an engine as opposed to those of a load, see ``loads``.
OF_ENGINE = ("layout", "block_size", "attention_backend", "dtype", "kv_cache_dtype", "tensor_parallel")
#: What both engines must have in common for their answers to be comparable.
SHARED = (
    "layout", "block_size", "attention_backend", "dtype", "num_layers", "versions", "max_num_batched_tokens",
)  # fmt: skip
#: vLLM 0.29+ names layouts by their order of axes (L, B, H, N, C).
ALIASES = {"LBNHC": "NHD", "LBHNC": "HND"}


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
    return findings + _baseline(view, effective)


def _baseline(view: CellView, mine) -> list[Finding]:
    if view.baseline is None:
        return []
    theirs = view.baseline.effective
    if theirs is None:
        return [Finding(RULE, Reason.EFFECTIVE_UNKNOWN, {"engine": view.baseline.engine, "axis": "all"})]
    return [
        Finding(RULE, Reason.EFFECTIVE_DIFFERS, {"axis": axis, "baseline": theirs[axis], "found": mine[axis]})
        for axis in SHARED
        if axis in mine and axis in theirs and plain(mine[axis]) != plain(theirs[axis])
    ]


def plain(value: object) -> object:
    """One spelling for layouts, switches and numbers: ``LBNHC`` is NHD, True is on, ``16`` is 16."""
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, (int, float, str)):
        text = str(value)
        return ALIASES.get(text.upper(), text)
    return value
