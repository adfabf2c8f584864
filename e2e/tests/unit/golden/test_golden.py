"""What the rig says of each kind of run stays what it was, byte for byte; and nothing healthy can lose an event."""

from __future__ import annotations

import gzip
import random

import pytest
from golden import SET, expected, names, recording, said

from e2e.base.errors import RecordingError
from e2e.base.event import Event
from e2e.base.verdict import Verdict
from e2e.judge import judge
from e2e.recording.journal import read

KINDS = {
    "attached", "crash", "decode-bench", "example", "faults-index", "faults-kernel", "gain", "gain-looks", "grid",
    "interrupted", "maru", "offloading", "resumed", "two-at-once",
}  # fmt: skip
#: Healthy runs of one cell, whose every event is lost once.
HEALTHY = ("example", "attached", "maru")
#: Of one that passed these say nothing about a cell: what it cost, when an engine came and went, words for people.
WITHOUT_EVIDENCE = {"note", "digest.cost", "engine.ready", "engine.stop", "run.begin", "run.end", "plan.invalid"}


def is_evidence(event: Event) -> bool:
    return event.kind not in WITHOUT_EVIDENCE


def test_each_kind_of_run_is_there_and_the_set_stays_small():
    assert set(names()) >= KINDS
    assert sum(path.stat().st_size for path in SET.iterdir()) < 3 << 20


@pytest.mark.parametrize("name", names())
def test_what_is_said_stays_what_it_was(name):
    now = said(name)
    assert now.keys() == expected(name).keys()
    for what, text in expected(name).items():
        assert now[what] == text, f"{what} of {name} changed"


@pytest.mark.parametrize("name", names())
def test_no_machine_is_in_it(name):
    text = gzip.decompress(recording(name).read_bytes()).decode()
    assert not [word for word in ("/root/", "/work/", "/home/runner") if word in text]


@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_run_that_lost_an_event_never_passes(name):
    events = read(recording(name))
    assert judge(events).verdict is Verdict.PASS
    for number, event in enumerate(events):
        if is_evidence(event):
            left = judge([*events[:number], *events[number + 1 :]])
            assert left.verdict is not Verdict.PASS, f"event {number}, {event.kind}: {dict(event.data)}"


@pytest.mark.parametrize("name", HEALTHY)
def test_a_file_that_lost_a_line_is_refused(name, tmp_path):
    lines = gzip.decompress(recording(name).read_bytes()).splitlines(keepends=True)
    damaged = tmp_path / "recording.jsonl"
    for number in sorted(random.Random(name).sample(range(len(lines) - 1), 12)):
        damaged.write_bytes(b"".join([*lines[:number], *lines[number + 1 :]]))
        with pytest.raises(RecordingError, match=f"line {number + 1} "):
            read(damaged)


def test_cells_of_the_grid_lose_their_pass_one_by_one():
    """One event of each kind and cell: the verdict of that cell is no pass, and no other cell's gets better."""
    events = read(recording("grid"))
    first: dict[tuple[object, ...], int] = {}
    for number, event in enumerate(events):
        if is_evidence(event) and event.data.get("cell"):
            first.setdefault((event.kind, event["cell"]), number)
    seen = random.Random("grid").sample(sorted(first.items(), key=lambda item: item[1]), 40)
    for (kind, cell), number in seen:
        left = {c.id: c.verdict for c in judge(_without(events, number)).cells}
        assert left.get(cell) is not Verdict.PASS, f"{kind} of {cell}"


def _without(events: list[Event], number: int) -> list[Event]:
    return [*events[:number], *events[number + 1 :]]
