"""What stands at the beginning of every run: whose connector it is."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from e2e.base.event import Event
from e2e.connectors.embedded import Embedded
from e2e.connectors.example import Example
from e2e.flow import Flow, Name
from e2e.grid.cells import Grid
from e2e.report.progress import Progress
from e2e.settings.settings import Settings
from e2e.standing import Standing


@pytest.mark.parametrize(("adapter", "words"), [(Embedded(), "not Maru"), (Example(), "a correct control")])
def test_a_run_says_what_its_connector_is(adapter, words, tmp_path: Path):
    events: list[Event] = []

    def record(kind: str, **data: object) -> Event:
        events.append(Event(kind, data))
        return events[-1]

    stream = io.StringIO()
    flow = Flow(
        Settings(), adapter, None, Standing(record, directory=tmp_path), Progress(stream, {}), Name.new(1), None, None
    )
    flow.begin(Grid(()))
    (note,) = [event["text"] for event in events if event.kind == "note"]
    assert note.startswith(f"Connector {adapter.name}: ")
    assert words in note
    assert note in stream.getvalue()
