"""What each load really did, as the connector journals it: storage format, load mode, placement, overlap."""

from __future__ import annotations

from e2e.base.connector import OVERLAP_UNSEEN
from e2e.base.verdict import Finding, Reason
from e2e.judge.same_engine import asked, plain
from e2e.judge.view import Arm, CellView

RULE = "loads"
AXES = ("storage_format", "load", "overlap", "placement")


def check(view: CellView) -> list[Finding]:
    findings = []
    for sent in view.external:
        arm, place = sent.arm, view.place(sent)
        expect = {axis: plain(value) for axis, value in asked(view, sent.send, AXES).items()}
        if not expect or sent.beside.cut:
            continue
        served = [prompt for prompt, hit in arm.expected.items() if hit.external.least and prompt not in arm.gone]
        fewest = min((len(told["loads"] or ()) for told in arm.evidence), default=0)
        if fewest < len(served):
            seen = {"axis": "loads", **place, "expected": len(served), "found": fewest}
            findings.append(Finding(RULE, Reason.EFFECTIVE_UNKNOWN, seen))
        findings.extend(_differing(arm, place, expect))
        if expect.get("overlap") == "on" and arm.loads and not _untold(view, arm):
            findings.extend(_overlap(arm, place))
    return findings


def _differing(arm: Arm, place: dict[str, object], expect: dict[str, object]) -> list[Finding]:
    findings = []
    for axis, wanted in expect.items():
        seen = {"axis": axis, **place, "expected": wanted}
        if any(axis not in load for load in arm.loads):
            findings.append(Finding(RULE, Reason.EFFECTIVE_UNKNOWN, seen))
        found = sorted({str(plain(load[axis])) for load in arm.loads if axis in load and plain(load[axis]) != wanted})
        if found:
            reason = Reason.PLACEMENT_NOT_USED if axis == "placement" else Reason.EFFECTIVE_DIFFERS
            findings.append(Finding(RULE, reason, {**seen, "found": ", ".join(found)}))
    if "placement" in expect:
        idle = sum(not (load.get("places") or load.get("failed")) for load in arm.loads)
        if idle:
            seen = {"axis": "placement", **place, "expected": expect["placement"], "idle_loads": idle}
            findings.append(Finding(RULE, Reason.PLACEMENT_NOT_USED, seen))
    return findings


def _untold(view: CellView, arm: Arm) -> bool:
    """The plan said beforehand that this connector tells of no waits, and it told of none: the cell is judged by its
    answers, bytes and the overlap path taken, and its report says what it can't see."""
    planned = any(spot.get("fault_class") == OVERLAP_UNSEEN for spot in view.plan.blind)
    return planned and not any("blocking_waits" in load for load in arm.loads)


def _overlap(arm: Arm, place: dict[str, object]) -> list[Finding]:
    """Nobody waits for a layer of a load that failed."""
    landed = [load for load in arm.loads if not load.get("failed")]
    if not landed or sum(load.get("blocking_waits") or 0 for load in landed) > 0:
        return []
    pending = sum(load.get("pending_at_forward") or 0 for load in arm.loads)
    return [Finding(RULE, Reason.NO_OVERLAP, {**place, "loads": len(arm.loads), "pending_at_forward": pending})]
