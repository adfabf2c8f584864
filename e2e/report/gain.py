"""The answer to "is the change worth it?": one sentence per branch, a table behind it, and the figures as JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path

from e2e.base.event import Event
from e2e.base.gain import FASTER, NOTHING, WITHIN, Answer, Change, GainJudgement, Launches
from e2e.base.verdict import Verdict

SCHEMA = "maru-e2e/gain/1"
DOUBLE = (
    "Measured is the embedded double, which has Maru's shape and keys, and not Maru: its pool is shared memory, "
    "so these figures say what the change does here, not what it does in Maru."
)


def write(found: GainJudgement, events: Sequence[Event], folder: Path) -> None:
    """gain.json and gain.md in ``folder``; the latter on the terminal, too."""
    (folder / "gain.json").write_text(json.dumps(as_json(found, events), indent=1) + "\n")
    text = markdown(found, events)
    (folder / "gain.md").write_text(text)
    sys.stdout.write(text)


def as_json(found: GainJudgement, events: Iterable[Event]) -> dict[str, object]:
    cells = [{"id": cell.id, "verdict": cell.verdict.value} for cell in found.cells.cells]
    return {
        "schema": SCHEMA, "plan": dict(found.plan), "measured_on": _measured_on(events), "cells": cells,
        "answers": [{**asdict(answer), "sentence": sentence(answer)} for answer in found.answers],
        "launches": [asdict(each) for each in found.launches],
        "overlaps": [asdict(each) for each in found.overlaps], "exit_code": found.exit_code,
    }  # fmt: skip


def sentence(answer: Answer) -> str:
    """One per branch and number of requests at once."""
    at = f"at {answer.concurrency} at once" + (f", {answer.length} tokens" if answer.length else "")
    if answer.answer == NOTHING:
        return f"no figure {at}: {answer.why}"
    figure = f"{_percent(answer.client.median)} ({_range(answer.client)}) {at}"
    if answer.answer == WITHIN:
        return f"within the noise: do not make the change ({figure}; noise {_range(answer.noise)})"
    slower = "" if answer.answer == FASTER else ": slower, do not make the change"
    return f"beyond the noise: {figure}{slower}"


def markdown(found: GainJudgement, events: Iterable[Event]) -> str:
    plan, names = found.plan, found.plan["names"]
    what = f"{plan['axis']}: " if plan["axis"] else ""
    lines = [f"# Gain: {what}{names['b']} against {names['a']}", "", _measured_on(events) + ".", ""]
    if plan["double"] or _is_double(events):
        lines += [DOUBLE, ""]
    if plan["device"] == "cpu":
        lines += ["It ran on a CPU: nothing here says anything about a GPU.", ""]
    whole = [answer for answer in found.answers if answer.length is None]
    lines += [f"- {answer.branch}: {sentence(answer)}" for answer in whole]
    lines += ["", *_table(found.answers), "", *_launch_table(found.launches, names)]
    if found.overlaps:
        lines += ["", "Timed loads that were meant to overlap the forward:", ""]
        lines += [
            f"- {each.cell}: {each.pending} of {each.loads} had layers missing when the forward began, "
            f"{each.waited} made it wait"
            for each in found.overlaps
        ]
    failed = [cell for cell in found.cells.cells if cell.verdict is not Verdict.PASS]
    lines += [f"- not proven: {cell.id} is {cell.verdict.value} ({cell.reason.sentence})" for cell in failed]
    return "\n".join([*lines, ""])


def _table(answers: Iterable[Answer]) -> list[str]:
    lines = [
        "| branch | at once | tokens | a, ms | b, ms | client TTFT | a again | server TTFT | pairs | left out |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for each in answers:
        if each.client is None:
            continue
        cells = (
            each.branch, each.concurrency, each.length or "all", f"{each.a_s * 1e3:.2f}", f"{each.b_s * 1e3:.2f}",
            _both(each.client), _both(each.noise), _both(each.server), each.client.pairs, each.left_out,
        )  # fmt: skip
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return lines


def _launch_table(launches: Iterable[Launches], names) -> list[str]:
    launches = list(launches)
    if not launches:
        return ["Launches were not counted."]
    unit = "launches" if launches[0].device == "cuda" else "ATen operations (nothing is launched on a CPU)"
    lines = [
        f"Counted per request by the profiler, in {unit}:", "",
        "| branch | side | tokens | all | in placement | GPU time of placement, us |", "|---|---|---|---|---|---|",
    ]  # fmt: skip
    for each in launches:
        placed = "-" if each.placement is None else f"{each.placement:.0f}"
        spent = "-" if each.device_us is None else f"{each.device_us:.0f}"
        lines.append(f"| {each.branch} | {names[each.side]} | {each.length} | {each.total:.0f} | {placed} | {spent} |")
    return lines


def _is_double(events: Iterable[Event]) -> bool:
    """Was it the embedded connector, under whatever name it was given?"""
    loaded = (str(event["effective"].get("connector", "")) for event in events if event.kind == "engine.config")
    return any(name.startswith("e2e.inside.") for name in loaded)


def _measured_on(events: Iterable[Event]) -> str:
    """GPU or processor, vLLM and torch, as the worker told them."""
    effective = next((event["effective"] for event in events if event.kind == "engine.config"), {})
    versions = effective.get("versions", {})
    machine = next((event["machine"] for event in events if event.kind == "run.begin"), {})
    where = effective.get("gpu") or f"CPU ({machine.get('threads', '?')} threads)"
    return f"{where}, vLLM {versions.get('vllm', '?')}, torch {versions.get('torch', '?')}"


def _percent(value: float) -> str:
    return f"{value * 100:+.1f} %"


def _range(change: Change) -> str:
    return f"{change.low * 100:+.1f}..{change.high * 100:+.1f}"


def _both(change: Change | None) -> str:
    return "-" if change is None else f"{_percent(change.median)} ({_range(change)})"
