"""The whole search on a world without engines: what it plays, what it spends, how it is continued, what it leaves."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import ClassVar

import msgspec
import pytest
from planted import PlantedWorld, second_read, third_in_life

sys.path.insert(0, str(Path(__file__).parent.parent / "judge"))
from synthetic_recording import Recording

from e2e.base.errors import EXIT_CORRUPT, EXIT_INCONCLUSIVE, Stopped
from e2e.base.program import Program
from e2e.material import Material
from e2e.recording.journal import Journal, read
from e2e.report import shrunk
from e2e.settings import device, program_file
from e2e.shrink import shrinking
from e2e.shrink.failed import Failed
from e2e.shrink.trials import Limits, starts

WORDS = [f"word{number}" for number in range(2000)]


def encode(text: str) -> list[int]:
    return [int(word[4:]) if word[4:].isdigit() else len(word) for word in text.split()]


class World(PlantedWorld):
    """Of an attempt; ``worlds``: all so far. ``stops``: after so many Sends a signal comes."""

    worlds: ClassVar[list] = []
    stops: ClassVar[list] = []
    has = staticmethod(second_read)

    def __init__(self, settings, made_of, record, prompts, run_id, attempt, ledger, zygote):
        super().__init__(record, bug=type(self).has)
        self.prompts, self.run_id, self.attempt, self.sent = prompts, run_id, attempt, 0
        self.worlds.append(self)

    def without_secrets(self, text):
        return text

    def do(self, *what):
        super().do(*what)
        self.sent += what[0] == "send"
        if what[0] == "send" and [self.sent] == self.stops:
            raise Stopped(15)


@pytest.fixture
def run(tmp_path, monkeypatch):
    """A corrupt recording, whose connector serves each second read wrongly."""
    recording = Recording()
    recording.change("request.done", lambda data: data["token_ids"].__setitem__(0, 7), arm="external_again", prompt=1)
    with Journal(tmp_path / "run" / "recording.jsonl") as journal:
        for event in recording.build():
            journal.record(event.kind, **event.data)
    made_of = Material("python", "", None, None, tuple(" ".join(WORDS[i::4]) for i in range(4)), encode)
    monkeypatch.setattr(device, "has_gpu", lambda: False)
    monkeypatch.setattr(shrinking, "material", lambda settings, python: made_of)
    monkeypatch.setattr(shrinking, "clean_up", lambda: None)
    monkeypatch.setattr("e2e.attempt.LiveWorld", World)
    monkeypatch.setattr(World, "worlds", [])
    monkeypatch.setattr(World, "stops", [])
    monkeypatch.setattr(World, "has", staticmethod(second_read))
    monkeypatch.setattr(Failed, "again", lambda self, judged: any(judged.id in world.wrong for world in World.worlds))
    return tmp_path / "run"


def search(run: Path, *, limits: Limits = Limits(), resume: bool = False) -> int:  # noqa: B008
    return shrinking.shrink(run, cell=None, limits=limits, out=run / "out", resume=resume, argv=["shrink", "run"])


def left(run: Path) -> Program:
    return msgspec.convert(program_file.read(str(run / "out" / shrunk.PROGRAM)), Program)


def test_a_rerun_is_reduced_to_what_the_bug_needs(run, capsys):
    assert search(run) == EXIT_CORRUPT
    program = left(run)
    assert [send.where for send in program.sends] == [
        ("connector", "cold"), ("connector", "external"), ("connector", "external_again"),
    ]  # fmt: skip
    assert len(program.texts) == 1
    assert program.texts[0].tokens == 513, "the shortest that is served a whole step"
    table = json.loads((run / "out" / shrunk.AS_JSON).read_text())
    assert table["starts"] == starts(read(run / "out" / "recording.jsonl")) <= 4
    assert table["command"] in capsys.readouterr().out
    assert f"--program {run}/out/program.json" in table["command"]
    assert table["trials"][-1]["fresh"]
    assert not World.worlds[-1].running


def cells(run: Path) -> list[str]:
    return [event["cell"] for event in read(run / "out" / "recording.jsonl") if event.kind == "plan.cell"]


def test_a_search_that_was_stopped_goes_on_where_it_was(run):
    assert search(run) == EXIT_CORRUPT
    whole, number = left(run), len(cells(run))
    (run / "out").rename(run / "once")
    World.stops[:] = [World.worlds.pop().sent // 2]
    with pytest.raises(Stopped):
        search(run)
    begun = len(cells(run))
    assert 1 < begun < number
    World.stops.clear()
    assert search(run, resume=True) == EXIT_CORRUPT
    assert left(run) == whole
    assert len(cells(run)) <= number + 3, "what was played is not played again, but for the one that was cut off"
    assert len(set(cells(run))) == len(cells(run))
    table = json.loads((run / "out" / shrunk.AS_JSON).read_text())
    assert table["starts"] == starts(read(run / "out" / "recording.jsonl"))
    assert [trial["what"] for trial in table["trials"]].count("as it was") == 1


def test_a_search_that_ended_is_told_again_and_plays_nothing(run):
    search(run)
    before, sent = left(run), cells(run)
    assert search(run, resume=True) == EXIT_CORRUPT
    assert (left(run), cells(run)) == (before, sent)
    assert World.worlds[-1].sent == 0


@pytest.mark.parametrize("most", [2, 3, 4, 6])
def test_the_budget_of_starts_is_kept_and_what_is_left_is_sure(run, most):
    assert search(run, limits=Limits(starts=most)) == EXIT_CORRUPT
    events = read(run / "out" / "recording.jsonl")
    assert starts(events) <= most
    table = json.loads((run / "out" / shrunk.AS_JSON).read_text())
    assert (table["untried"] > 0) is (most < 3)
    sure = [trial for trial in table["trials"] if trial["fresh"] and trial["failed"]]
    assert sure


def test_no_time_leaves_it_as_it_was(run):
    assert search(run, limits=Limits(seconds=1e-9)) == EXIT_CORRUPT
    table = json.loads((run / "out" / shrunk.AS_JSON).read_text())
    assert (len(table["trials"]), table["before"]["sends"]) == (1, table["after"]["sends"])
    assert table["untried"] > 10


def test_what_never_fails_again_is_inconclusive(run, monkeypatch, capsys):
    monkeypatch.setattr(World, "has", staticmethod(lambda **_: False))
    assert search(run) == EXIT_INCONCLUSIVE
    assert len(cells(run)) == 1
    assert not (run / "out" / shrunk.PROGRAM).exists()
    assert "did not fail so again" in capsys.readouterr().out


def test_where_an_engine_s_life_matters_what_is_left_fails_on_a_fresh_one(run, monkeypatch):
    """On engines that are kept each candidate would seem to fail."""
    monkeypatch.setattr(World, "has", staticmethod(third_in_life))
    assert search(run, limits=Limits(starts=40)) == EXIT_CORRUPT
    program = left(run)
    assert sum(len(send.texts) for send in program.sends if send.external) == 3
    assert starts(read(run / "out" / "recording.jsonl")) <= 40
