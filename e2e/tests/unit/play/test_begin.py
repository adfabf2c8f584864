"""What stands at the beginning of every run: whose connector it is, and all that each cell is to do."""

from __future__ import annotations

import io
from pathlib import Path
from types import SimpleNamespace

import pytest

from e2e.attempt import begin
from e2e.base.event import Event
from e2e.base.program import program_of
from e2e.connectors.embedded import Embedded
from e2e.connectors.example import Example
from e2e.fit import fitted
from e2e.grid.cells import Grid, by_engine, expand
from e2e.grid.selection import Selection
from e2e.play.player import Player
from e2e.report.progress import Progress
from e2e.settings.settings import Settings
from e2e.standing import Standing


def begun(adapter, folder: Path, grid=Grid(()), parts=()):  # noqa: B008
    events: list[Event] = []

    def record(kind: str, **data: object) -> Event:
        events.append(Event(kind, data))
        return events[-1]

    progress = Progress(stream := io.StringIO(), {})
    world, standing = SimpleNamespace(run_id="r"), Standing(record, directory=folder)
    begin(Player(world, standing, progress, 1, progress.say), Settings(), adapter, grid, parts)
    return events, stream.getvalue()


@pytest.mark.parametrize(("adapter", "words"), [(Embedded(), "not Maru"), (Example(), "a correct control")])
def test_a_run_says_what_its_connector_is(adapter, words, tmp_path: Path):
    events, screen = begun(adapter, tmp_path)
    (note,) = [event["text"] for event in events if event.kind == "note"]
    assert note.startswith(f"Connector {adapter.name}: ")
    assert words in note
    assert note in screen


def test_every_program_is_on_record_before_anything_starts(tmp_path: Path):
    adapter, settings = Embedded(), Settings(attention="strided", out=tmp_path)
    grid = expand(Selection(), adapter)
    parts = [
        fitted(key, cells, settings=settings, adapter=adapter, model=None, shared=tmp_path)
        for key, cells in by_engine(grid.cells, adapter).items()
    ]
    events, _ = begun(adapter, tmp_path, grid, parts)
    told = [event for event in events if event.kind == "plan.cell"]
    assert [event["cell"] for event in told] == [cell.id for cell in grid.cells]
    for event in told:
        program = program_of(event["program"])
        assert (program.scenario, program.digest) == (event["scenario"], event["program_digest"])
        assert [text.tokens for text in program.texts] == event["lengths"]
        assert "scenario" not in event["settings"]
