"""Did each engine run with the setting that was asked for, as read in the worker, and the plain one that it is compared
with in the same?"""

from __future__ import annotations

from collections.abc import Iterator

from e2e.base.verdict import Finding, Reason
from e2e.judge.same_engine import OF_ENGINE, asked, disagreements, plain, references
from e2e.judge.view import CellView, Ran, Side

RULE = "effective"


def check(view: CellView) -> list[Finding]:
    findings: list[Finding] = []
    for side in view.sides.values():
        for name, values in ((side.effective or {}).get("ranks_differ") or {}).items():
            seen = {"engine": side.name, "axis": name, "by_rank": values}
            findings.append(Finding(RULE, Reason.EFFECTIVE_DIFFERS, seen))
        if side.site.connector:
            for ran in side.engines or (Ran("", None, started=False),):
                findings.extend(_engine(view, side, ran))
            for other in references(view, side):
                findings.extend(each for each in _beside(side, other) if each not in findings)
    return findings


def _engine(view: CellView, side: Side, ran: Ran) -> Iterator[Finding]:
    effective = ran.effective
    if effective is None:
        yield Finding(RULE, Reason.EFFECTIVE_UNKNOWN, {"engine": ran.name, "axis": "all"})
        return
    place = {"engine": ran.name} if len(view.connectors) > 1 else {}
    expect = asked(view, side.site, OF_ENGINE)
    if view.plan.oracle == "aligned" or side.site.step:
        expect["max_num_batched_tokens"] = side.site.step or view.plan.step
    for axis, wanted in expect.items():
        if axis not in effective:
            if axis != "max_num_batched_tokens":
                yield Finding(RULE, Reason.EFFECTIVE_UNKNOWN, {**place, "axis": axis, "expected": wanted})
        elif plain(effective[axis]) != plain(wanted):
            seen = {**place, "axis": axis, "expected": wanted, "found": effective[axis]}
            yield Finding(RULE, Reason.EFFECTIVE_DIFFERS, seen)


def _beside(side: Side, other: Side) -> Iterator[Finding]:
    """What both were asked for alike must be alike; where a site was asked for something else, they are not compared
    bit for bit."""
    if other.effective is None:
        yield Finding(RULE, Reason.EFFECTIVE_UNKNOWN, {"engine": other.engines[-1].name, "axis": "all"})
        return
    for name, (own, its) in disagreements(side, other).items():
        if _asked(side, name) == _asked(other, name):
            yield Finding(RULE, Reason.EFFECTIVE_DIFFERS, {"axis": name, "baseline": its, "found": own})


def _asked(side: Side, name: str) -> object:
    return side.site.step if name == "max_num_batched_tokens" else side.site.settings.get(name)
