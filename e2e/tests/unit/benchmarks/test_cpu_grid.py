"""The benchmark's figures, from events of known times."""

from __future__ import annotations

from e2e.base.event import Event
from e2e.tests.benchmarks.cpu_grid import beside_arms, figures

S = 10**9


def start(engine: str, begun: int, start_s: float, how: str) -> list[Event]:
    data = {"engine": engine, "engine_key": "HND", "role": "baseline", "attempt": 1, "argv": [], "launcher": "process"}
    ready = Event("engine.ready", {"engine": engine, "start_s": start_s}, begun + int(start_s * S))
    return [Event("engine.start", {**data, "log": None, "started": how}, begun), ready]


def test_own_time_is_what_starts_and_answers_leave():
    done = {"request": "r", "sent_ns": 30 * S, "first_ns": 31 * S, "done_ns": 37 * S}
    done |= {"token_ids": [], "logprobs": [], "top": [], "finish_reason": "length", "cached_tokens": 0, "text": []}
    events = [
        *start("a", 0, 12.0, "fork"), *start("b", 13 * S, 4.0, "fork"), *start("c", 18 * S, 3.0, "fork"),
        *start("d", 21 * S, 6.0, "stock"),
        Event("request.done", done, 37 * S), Event("run.end", {"attempt": 1}, 40 * S),
    ]  # fmt: skip
    assert figures(events) == [
        ("the whole run", 40.0, 150), ("the rig's own time", 8.0, 15), ("a start by fork, median", 3.5, 5),
    ]  # fmt: skip


def test_without_a_second_fork_no_median_is_told():
    events = [*start("a", 0, 2.0, "fork"), *start("b", 3 * S, 2.0, "stock"), Event("run.end", {"attempt": 1}, 6 * S)]
    assert [what for what, _, _ in figures(events)] == ["the whole run", "the rig's own time"]


def cell(begin: int, end: int, whole: int) -> list[Event]:
    about = {"cell": "c", "engine": "a", "attempt": 1}
    events = [Event("cell.begin", about, begin * S), Event("cell.end", about, end * S)]
    return [Event("note", {"text": ""}, 0), *events, Event("run.end", {"attempt": 1}, whole * S)]


def test_the_rerun_is_held_against_its_four_arms():
    assert beside_arms(cell(4, 8, 10), cell(4, 9, 12)) == (1.2, 1.25)
