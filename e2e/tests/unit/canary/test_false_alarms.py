"""Clean recordings of two real engines, changed in ways that say nothing of their loads, are never called corrupt; and
the wrong load that stands in each always is."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from random import Random

import pytest

from e2e.base.event import Event
from e2e.base.verdict import Reason, Verdict
from e2e.canary.segments import OF_ALL
from e2e.judge.cells import judge, judge_cell
from e2e.recording.journal import read

RECORDINGS = Path(__file__).parents[2] / "recordings" / "canary"
#: The wrong load of each; that of ``struck``, of busier engines, was located by digests.
WRONG = {"two_engines": "000023-cross", "struck": "000015-cross"}
#: Of a logprob; a bfloat16 model on a GPU shows as much beside others.
NOISE = 0.06


@cache
def recorded(name: str) -> tuple[list[Event], dict[str, list[Event]]]:
    """(what all cells are judged with, cell -> its events)."""
    of_all, cells = [], {}
    requests: dict[object, str] = {}
    for event in read(RECORDINGS / f"{name}.jsonl"):
        if event.kind in OF_ALL:
            of_all.append(event)
            continue
        cell = event.data.get("cell") or requests.get(event.data.get("request"))
        if event.kind == "request.sent":
            requests[event.data["request"]] = str(cell)
        if cell and event.kind != "canary.probe":
            cells.setdefault(str(cell), []).append(event)
    return of_all, cells


def changed(events: list[Event], chance: Random) -> list[Event]:
    """As the same probe might have looked: later or slower, beside others, with noise where others are, told less."""
    crowd = chance.random() < 0.6
    silent, drop, late_s = chance.random() < 0.2, chance.random() < 0.15, chance.uniform(0, 3)
    lost = chance.choice([event.data["request"] for event in events if event.kind == "request.sent"]) if drop else None
    found = []
    for event in events:
        data = dict(event.data)
        if event.kind == "metrics.delta":
            if chance.random() < 0.05:
                continue
            if crowd:
                others = {name: value + chance.randrange(1, 900) for name, value in data["counters"].items()}
                data |= {"counters": others, "at_work": chance.randrange(4), "complete": chance.random() < 0.8}
        elif event.kind == "plan.cell":
            data["noise"] = chance.choice([None, NOISE, 2 * NOISE]) if crowd else data["noise"]
        elif event.kind == "request.done":
            if data["request"] == lost:
                continue
            data |= {name: data[name] + int(late_s * 1e9) for name in ("first_ns", "done_ns")}
            data["cached_tokens"] = None if silent else data["cached_tokens"]
            if crowd:
                data["logprobs"] = [value + chance.uniform(-NOISE, NOISE) / 2 for value in data["logprobs"]]
        found.append(replace(event, data=data))
    return found


def alarms(judgements: int, seed: int) -> tuple[int, int]:
    """(corrupt verdicts, passes) of so many."""
    clean = [(name, cell) for name, wrong in WRONG.items() for cell in recorded(name)[1] if not cell.startswith(wrong)]
    chance, corrupt, passed = Random(seed), 0, 0
    for _ in range(judgements):
        recording, name = chance.choice(clean)
        of_all, cells = recorded(recording)
        verdict = judge_cell([*of_all, *changed(cells[name], chance)], name).verdict
        corrupt += verdict is Verdict.CORRUPT
        passed += verdict is Verdict.PASS
    return corrupt, passed


@pytest.mark.parametrize(("name", "wrong"), WRONG.items())
def test_it_is_judged_as_it_was(name, wrong):
    cells = {cell.id: cell for cell in judge(read(RECORDINGS / f"{name}.jsonl")).cells}
    not_passed = {cell.id for cell in cells.values() if cell.verdict is not Verdict.PASS}
    assert not_passed - {f"{wrong}-located"} == {wrong}
    assert cells[wrong].verdict is Verdict.CORRUPT
    assert cells[f"{wrong}-again"].verdict is Verdict.PASS, "the engines do repeat themselves"


def test_a_wrong_load_was_located():
    cells = {cell.id: cell for cell in judge(read(RECORDINGS / "struck.jsonl")).cells}
    located = cells[f"{WRONG['struck']}-located"].findings[0]
    assert located.reason is Reason.DIGEST_DIFFERS
    assert (located.evidence["block"], located.evidence["wrong_share"]) == (16, 0.5), "the second of two chunks"


def test_no_false_alarm():
    corrupt, passed = alarms(200, seed=14)
    assert corrupt == 0
    assert passed > 50, "what is inconclusive throughout alarms nobody"


@pytest.mark.long
@pytest.mark.timeout(900)
def test_no_false_alarm_in_20_000_judgements():
    corrupt, passed = alarms(20_000, seed=15)
    assert (corrupt, passed > 5000) == (0, True)


@pytest.mark.parametrize(("name", "wrong"), WRONG.items())
def test_the_wrong_load_is_seen_whatever_its_times_were(name, wrong):
    of_all, cells = recorded(name)
    for shift_s in range(20):
        moved = [
            replace(event, data={**event.data, "first_ns": event.data["first_ns"] + shift_s * 10**9})
            if event.kind == "request.done"
            else event
            for event in cells[wrong]
        ]
        assert judge_cell([*of_all, *moved], wrong).verdict is Verdict.CORRUPT
