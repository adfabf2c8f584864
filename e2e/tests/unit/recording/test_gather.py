"""Shards of one grid, put together, are the whole: of a real run, parted after the fact."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path

import pytest

from e2e import run
from e2e.base.errors import UsageError
from e2e.base.event import Event
from e2e.judge import judge
from e2e.recording.gather import Share, gathered, write
from e2e.recording.journal import read
from e2e.report.facts import facts
from e2e.settings.settings import FREE_OF_SHARDS, RECORDING

sys.path.insert(0, str(Path(__file__).parent.parent / "golden"))
import golden
from shards import parted


@pytest.fixture(scope="module")
def whole() -> list[Event]:
    return read(golden.recording("grid"))


@pytest.fixture(scope="module")
def shards(whole, tmp_path_factory) -> list[Share]:
    """By engine key, each in a folder of its own."""
    found = []
    for number, events in enumerate(parted(whole).values(), start=1):
        folder = tmp_path_factory.mktemp(f"shard{number}")
        write(folder / RECORDING, events)
        found.append(Share(folder, read(folder / RECORDING)))
    return found


def test_the_whole_is_judged_as_it_was(whole, shards, tmp_path):
    assert len(shards) == 2
    assert all(0 < len(judge(share.events).cells) < len(judge(whole).cells) for share in shards)
    write(tmp_path / RECORDING, gathered(shards, free=FREE_OF_SHARDS))
    together = judge(read(tmp_path / RECORDING))
    said, before = ([asdict(cell) for cell in each.cells] for each in (together, judge(whole)))
    for cell, was in zip(said, before, strict=True):
        cell.pop("attempt"), was.pop("attempt")
        assert cell == was


def test_its_attempts_and_engine_starts_are_told_apart(shards):
    events = gathered(shards, free=FREE_OF_SHARDS)
    assert [e["attempt"] for e in events if e.kind == "run.begin"] == [1, 2]
    starts = [e["engine"] for e in events if e.kind == "engine.start"]
    assert len(set(starts)) == len(starts) == sum(e.kind == "engine.start" for share in shards for e in share.events)
    assert sum(attempt["ended"] for attempt in facts(events).run["attempts"]) == 2


def test_the_command_writes_one_report(shards, tmp_path, capsys):
    assert run.merge([share.folder for share in shards], out=tmp_path / "all") == 0
    assert "16 of 16 pass" in capsys.readouterr().out
    assert {path.name for path in (tmp_path / "all").iterdir()} >= {RECORDING, "report.json", "report.md", "junit.xml"}


def test_what_would_count_twice_or_differs_is_refused(shards, tmp_path):
    one, other = shards
    with pytest.raises(UsageError, match="the same run; give each once"):
        gathered([one, Share(tmp_path, one.events)])
    again = [Event(e.kind, {**e.data, "run_id": "again"}, e.t_ns) if e.kind == "run.begin" else e for e in one.events]
    with pytest.raises(UsageError, match=r"the cell .* stands in .* merge shards of one grid"):
        gathered([one, Share(tmp_path, again)])
    with pytest.raises(UsageError, match=r"differ in out, shard \(out: 'results/1' and 'results/2'\)"):
        gathered([one, other])
    write(tmp_path / RECORDING, one.events)
    with pytest.raises(UsageError, match="is there already"):
        write(tmp_path / RECORDING, one.events)


def test_a_log_is_looked_for_where_its_recording_lies_now(shards):
    one, other = shards
    lay = Path(one.events[0]["folder"], one.events[0]["settings"]["out"]).absolute()

    def logged(share: Share, log: str) -> Share:
        starts = ("engine.start", "engine.failed")
        events = [Event(e.kind, {**e.data, "log": log}, e.t_ns) if e.kind in starts else e for e in share.events]
        return Share(share.folder, events)

    both = [logged(one, f"{lay}/logs/a.log"), logged(other, "/var/log/b.log")]
    logs = {event["log"] for event in gathered(both, free=FREE_OF_SHARDS) if event.kind == "engine.start"}
    assert logs == {f"{one.folder}/logs/a.log", "/var/log/b.log"}
