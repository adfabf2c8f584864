"""What can happen to a recording's lines, and what becomes of it: refused with its line named, or judged, rendered."""

from __future__ import annotations

import copy
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from e2e.base.errors import RecordingError
from e2e.base.event import Event
from e2e.base.judgement import Judgement
from e2e.base.verdict import Verdict
from e2e.judge import judge
from e2e.judge.gain import judge_gain
from e2e.recording.journal import read
from e2e.report import console, gain, markdown, scoreboard
from e2e.report.facts import facts
from e2e.report.files import RENDERERS
from e2e.report.report_json import plain

Place = tuple[str | int, ...]


def entries(events: Sequence[Event]) -> list[dict]:
    """As they stand in a recording, one a line."""
    return [
        {"seq": seq, "t_ns": event.t_ns, "kind": event.kind, "data": copy.deepcopy(dict(event.data))}
        for seq, event in enumerate(events)
    ]


def lines_of(entries: Sequence[object]) -> list[str]:
    return [json.dumps(entry) for entry in entries]


def renumbered(entries: Sequence[Mapping]) -> list[dict]:
    return [{**entry, "seq": seq} for seq, entry in enumerate(entries)]


def places(value: object, at: Place = ()) -> Iterator[Place]:
    """Of every value inside ``value``, tables and lists too."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in inner:
        yield (*at, key)
        yield from places(item, (*at, key))


def at(value: object, place: Place) -> object:
    for key in place:
        value = value[key]
    return value


def replaced(entry: Mapping, place: Place, value: object) -> dict:
    fresh = copy.deepcopy(dict(entry))
    at(fresh, place[:-1])[place[-1]] = value
    return fresh


def judged(lines: Sequence[str], folder: Path) -> Judgement | None:
    """Every report rendered as well; None for what was refused with its line named."""
    path = folder / "recording.jsonl"
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    try:
        events = read(path)
    except RecordingError as error:
        if " line " in str(error):
            return None
        raise
    judgement = judge(events)
    render(events, judgement, folder)
    return judgement


def render(events: Sequence[Event], judgement: Judgement, folder: Path) -> None:
    of_run = facts(events)
    for make in RENDERERS.values():
        make(of_run, judgement).encode()
    screen = console.console(io.StringIO())
    console.show(of_run, judgement, on=screen, directory=folder)
    if any(cell.fault for cell in judgement.cells):
        scoreboard.show(scoreboard.scoreboard(judgement), on=screen, directory=folder)
    compared = judge_gain(events)
    if compared is not None:
        json.dumps(plain(gain.as_json(compared, events)), allow_nan=False)
        markdown.render(gain.document(compared, events)).encode()


def verdicts(judgement: Judgement) -> dict[str, Verdict]:
    return {cell.id: cell.verdict for cell in judgement.cells}
