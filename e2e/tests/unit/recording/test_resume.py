import pytest

from e2e.base.errors import UsageError
from e2e.base.event import REQUIRED, SCHEMA, Event
from e2e.base.program import Cold, Program, Send, Site, Start, Stop, Text, plainly
from e2e.recording.resume import check_same, finished, next_attempt, settings_of


def begin(attempt, **settings):
    return Event(
        "run.begin",
        {"run_id": "r", "attempt": attempt, "schema": SCHEMA, "command": [], "versions": {}, "machine": {},
         "settings": settings, "wall_time": ""},
    )  # fmt: skip


def plan(cell, attempt, key="HND", **about):
    rest = dict.fromkeys(REQUIRED["plan.cell"])
    return Event("plan.cell", rest | {"cell": cell, "attempt": attempt, "engine_key": key, "baseline": True, **about})


def cell_end(cell, attempt):
    return Event("cell.end", {"cell": cell, "engine": "e", "attempt": attempt})


def baseline_end(attempt, key="HND"):
    return Event("baseline.end", {"engine": "b", "engine_key": key, "attempt": attempt})


def test_attempts_count_from_one_and_a_killed_one_uses_its_number():
    assert next_attempt([]) == 1
    assert next_attempt([begin(1), begin(2)]) == 3


def test_cell_is_finished_when_it_and_its_baseline_ended_in_one_attempt():
    events = [begin(1), plan("a", 1), plan("b", 1), baseline_end(1), cell_end("a", 1)]
    assert finished(events) == {"a"}


def test_baseline_of_another_attempt_or_key_does_not_count():
    events = [begin(1), plan("a", 1), plan("b", 1, key="NHD"), cell_end("a", 1), cell_end("b", 1)]
    assert finished([*events, baseline_end(2), baseline_end(1, key="NHD")]) == {"b"}


def test_an_attached_cell_or_one_that_starts_its_own_engines_waits_for_no_baseline():
    send = Send("cold", "plain", (0,), (Cold(),))
    plain = Site("plain", connector=False)
    alone = Program((plain,), (Text(9),), (Start("plain"), send, Stop("plain")))
    lent = Program((plain,), (Text(9),), (send,))
    told = {"a": {"baseline": False}, "b": {"program": plainly(alone)}, "c": {"program": plainly(lent)}}
    events = [event for cell, about in told.items() for event in (plan(cell, 1, **about), cell_end(cell, 1))]
    assert finished(events) == {"a", "b"}


def test_cell_finished_once_stays_finished():
    events = [plan("a", 1), cell_end("a", 1), baseline_end(1), begin(2), plan("a", 2)]
    assert finished(events) == {"a"}


def test_settings_come_from_the_first_attempt():
    assert settings_of([begin(1, model="m"), begin(2, model="x")]) == {"model": "m"}
    with pytest.raises(UsageError, match="nothing to resume"):
        settings_of([])


def test_changed_settings_are_named():
    check_same({"model": "m", "out": "1"}, {"model": "m", "out": "2"}, ignore=["out"])
    with pytest.raises(UsageError, match=r"can't change model \(model: 'm' before, 'x' now\)"):
        check_same({"model": "m"}, {"model": "x"})
