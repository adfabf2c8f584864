"""Digests are fetched arm by arm, written once, and faults planted around a connector are journaled."""

from __future__ import annotations

import pytest

from e2e.base.errors import EngineAnswer
from e2e.base.event import Event
from e2e.observe.digests import DigestWindow, prompt_of


def row(number: int, request: str, values: str, **more) -> dict:
    when = "computed" if "cold" in request else "read"
    return {"id": number, "request": f"cmpl-{request}-0-0123abcd", "when": when, "blocks": 3, "tokens": 48,
            "values": values, "sample": None, **more}  # fmt: skip


class Worker:
    """Two ranks of a worker extension, as collective_rpc shows them; ``others``: rows of the second."""

    def __init__(self, *, refuse: str | None = None) -> None:
        self.rows, self.others, self.fired, self.planted, self.asked = [], [], {}, [], []
        self.refuse = refuse

    def __call__(self, method: str, *args: object) -> list:
        self.asked.append(method)
        if self.refuse == "no such method":
            raise EngineAnswer("there is no such method", status=500)
        if self.refuse:
            return [{"error": self.refuse}, {"error": self.refuse}]
        if method == "rig_plant":
            self.planted.append(args[0])
        if method != "rig_digests":
            return [{}, {}]
        fresh, other = ([r for r in rows if r["id"] > args[0]] for rows in (self.rows, self.others))
        return [{"rows": fresh, "fired": {}}, {"rows": other, "fired": dict(self.fired)}]


@pytest.fixture
def events() -> list[Event]:
    return []


@pytest.fixture
def record(events):
    def record(kind: str, **data: object) -> Event:
        events.append(Event(kind, data))
        return events[-1]

    return record


def window(worker: Worker, record) -> DigestWindow:
    made = DigestWindow(worker, record, engine="HND.connector.1")
    assert made.start()
    return made


def test_values_are_written_once_and_requests_get_their_prompt(events, record):
    worker = Worker()
    worker.rows = [row(1, "warm-up.cold.11111111", "w")]
    one = window(worker, record)
    with one.arm(cell="c", arm="cold"):
        worker.rows += [
            row(2, "HND.connector.1.c.cold.0.11111111", "a"),
            row(3, "HND.connector.1.c.cold.1.2222aaaa", "b"),
        ]
    with one.arm(cell="c", arm="external"):
        worker.rows += [row(4, "HND.connector.1.c.external.0.33333333", "a")]
    taken = [event.data for event in events if event.kind == "digest.taken"]
    assert [(d["arm"], d["prompt"], d["when"], d["values"]) for d in taken] == [
        ("cold", 0, "computed", "a"), ("cold", 1, "computed", "b"), ("external", 0, "read", None),
    ]  # fmt: skip
    assert taken[0]["content"] == taken[2]["content"] != taken[1]["content"]
    assert taken[0]["request"] == "HND.connector.1.c.cold.0.11111111"


def test_once_stopped_nothing_is_asked_any_more(events, record):
    worker = Worker()
    one = window(worker, record)
    one.stop()
    assert worker.asked == ["rig_probe", "rig_probe"]
    one.stop()
    with one.arm(cell="c", arm="cold"):
        pass
    assert worker.asked == ["rig_probe", "rig_probe"]
    assert not events


def test_each_rank_numbers_its_own_rows(events, record):
    worker = Worker()
    one = window(worker, record)
    with one.arm(cell="c", arm="external"):
        worker.rows = [row(number, f"e.c.external.{number}.11111111", "a", rank=0) for number in (1, 2, 3)]
        worker.others = [row(1, "e.c.external.1.11111111", "b", rank=1)]
    with one.arm(cell="c", arm="external_again"):
        worker.others += [row(2, "e.c.external_again.2.11111111", "c", rank=1)]
    taken = [(event["arm"], event["rank"], event["prompt"]) for event in events if event.kind == "digest.taken"]
    assert taken == [*(("external", 0, n) for n in (1, 2, 3)), ("external", 1, 1), ("external_again", 1, 2)]


def test_a_sample_becomes_an_event_of_its_own(events, record):
    worker, sample = Worker(), {"layer": 2, "kv": 1, "head": 0, "block": 3, "expected": "x", "found": "y"}
    with window(worker, record).arm(cell="c", arm="external"):
        worker.rows = [row(1, "e.c.external.2.11111111", "a", sample=sample, rank=1, nth=2)]
    (event,) = [event for event in events if event.kind == "digest.sample"]
    assert (event["prompt"], event["layer"], event["arm"]) == (2, 2, "external")
    assert (event["rank"], event["nth"]) == (1, 2)


def test_a_plant_lasts_one_arm_and_its_firings_are_counted(events, record):
    worker = Worker()
    one = window(worker, record)
    worker.fired = {"bit_flip": 2}
    with one.arm(cell="c", arm="external", plant="bit_flip"):
        worker.fired = {"bit_flip": 5}
    assert worker.planted == ["bit_flip", None]
    (event,) = [event for event in events if event.kind == "fault.fired"]
    assert (event["fault"], event["count"], event["rank"]) == ("bit_flip", 3, 1)
    with pytest.raises(RuntimeError), one.arm(cell="c", arm="external", plant="bit_flip"):
        raise RuntimeError
    assert worker.planted[-1] is None


@pytest.mark.parametrize("refuse", ["no such method", "the geometry is unknown."])
def test_an_engine_that_can_not_is_named_once_and_left_alone(events, record, refuse):
    worker = Worker(refuse=refuse)
    one = DigestWindow(worker, record, engine="HND.connector.1")
    assert not one.start()
    (note,) = events
    assert note.kind == "note"
    assert refuse in note["text"]
    with one.arm(cell="c", arm="cold"):
        pass
    assert worker.asked == ["rig_probe"]


@pytest.mark.parametrize(
    ("request_id", "prompt"),
    [("HND.connector.1.cell_a.cold.12.0123abcd", 12), ("warm-up.cold.0123abcd", None), ("chatcmpl", None), ("", None)],
)
def test_prompt_of_a_request(request_id, prompt):
    assert prompt_of(request_id) == prompt
