"""Engine keys at once: who runs beside whom, what waits for what, and that nobody goes on once one has failed."""

from __future__ import annotations

import io
import re
import threading
from collections import Counter
from dataclasses import dataclass

import pytest
from fake import FakeWorld, Key, lent, own
from test_player import planned

from e2e.base.errors import EngineRefused, RigError, Stopped
from e2e.judge.cells import judge
from e2e.play.player import Player
from e2e.play.side_by_side import Task, side_by_side, tasks
from e2e.recording.journal import Journal, read
from e2e.recording.resume import finished
from e2e.report.progress import Progress
from e2e.standing import Halted, Standing

LIMIT_S = 20


class Meeting:
    """Tasks that end only once as many of them have met as are to run at once."""

    def __init__(self, *, engines: int) -> None:
        self.engines, self.most, self.now = engines, 0, 0
        self._lock, self._barrier = threading.Lock(), threading.Barrier(engines)

    def task(self, weight: int = 1) -> Task:
        return Task(weight, lambda: self._work(weight))

    def _work(self, weight: int) -> None:
        with self._lock:
            self.now += weight
            self.most = max(self.most, self.now)
        if weight == 1:
            self._barrier.wait(LIMIT_S)
        with self._lock:
            self.now -= weight


def test_as_many_run_at_once_as_have_room_and_never_more():
    meeting = Meeting(engines=3)
    side_by_side([meeting.task() for _ in range(9)], engines=3, halt=pytest.fail)
    assert meeting.most == 3


def test_what_needs_several_engines_waits_for_room_and_what_needs_more_than_there_are_is_alone():
    meeting = Meeting(engines=2)
    todo = [meeting.task(), meeting.task(), meeting.task(2), meeting.task(5)]
    side_by_side(todo, engines=2, halt=pytest.fail)
    assert meeting.most == 5, "it counts as all there are"
    order = []
    steps = [Task(weight, lambda weight=weight: order.append(weight)) for weight in (5, 2, 5)]
    side_by_side(steps, engines=2, halt=pytest.fail)
    assert order == [5, 2, 5], "in the order of the grid"


def test_the_first_error_ends_all_and_nothing_more_begins():
    over, begun, halts = threading.Event(), [], []

    def fails():
        begun.append("fails")
        raise RigError("the disk is full")

    def waits():
        begun.append("waits")
        assert over.wait(LIMIT_S)

    def halt():
        halts.append(1)
        over.set()

    todo = [Task(1, waits), Task(1, fails), Task(2, lambda: begun.append("more"))]
    with pytest.raises(RigError, match="the disk is full"):
        side_by_side(todo, engines=2, halt=halt)
    assert sorted(begun) == ["fails", "waits"]
    assert halts


def test_a_signal_ends_all_as_well():
    over = threading.Event()

    def stops():
        raise Stopped(15)

    with pytest.raises(Stopped):
        side_by_side([Task(1, lambda: over.wait(LIMIT_S)), Task(1, stops)], engines=2, halt=over.set)


def test_whoever_records_after_the_halt_unwinds_once_and_its_last_words_count(tmp_path):
    with Journal(tmp_path / "recording.jsonl") as journal:
        standing, said = Standing(journal.record, directory=tmp_path), []

        def works():
            try:
                standing.record("note", text="goes on")
            except Halted:
                said.append("halted")
                standing.record("note", text="last words")

        standing.halt()
        thread = threading.Thread(target=works)
        thread.start()
        thread.join(LIMIT_S)
        standing.record("note", text="of the caller")
    assert said == ["halted"]
    assert [event["text"] for event in read(tmp_path / "recording.jsonl")] == ["last words", "of the caller"]


# the player


@dataclass(frozen=True)
class Part(Key):
    engines: int = 1


class World(FakeWorld):
    """``meet``: so many engines must have been begun before any is ready. ``stuck``: key whose engines never are."""

    def __init__(self, record, *, meet: int = 0, stuck: str = "", **more) -> None:
        super().__init__(record, **more)
        self.barrier, self.stuck, self.ended = threading.Barrier(meet) if meet else None, stuck, threading.Event()

    def do(self, *what):
        super().do(*what)
        if what[0] != "start" or what[1] == "store":
            return
        if self.barrier:
            self.barrier.wait(LIMIT_S)
        if self.stuck and what[1].startswith(self.stuck):
            assert self.ended.wait(LIMIT_S)
            self.record("note", text=f"{what[1]} was killed")

    def end(self):
        self.ended.set()


def played(folder, groups, *, engines, **world):
    screen = io.StringIO()
    with Journal(folder / "recording.jsonl") as journal, Progress(screen, {"cell": 9}, at_once=engines) as progress:
        standing = Standing(journal.record, directory=folder)
        world = World(standing.record, **world)
        player = Player(world, standing, progress, 1, progress.say)
        for part in (part for group in groups for part in group):
            for cell, program in part.programs.items():
                standing.record("plan.cell", **planned(part.key, cell, program))
        try:
            side_by_side(tasks(player, groups), engines=engines, halt=player.halt)
        finally:
            assert not world.running
    return read(folder / "recording.jsonl"), screen.getvalue()


def groups():
    return [[Part(key, {f"{key}-{n}": lent() for n in "xy"})] for key in "ab"]


def kinds(events, key, *wanted):
    return [e.kind for e in events if e.kind in wanted and key in str(e.data.get("cell") or e.data.get("engine_key"))]


def test_engines_start_at_once_and_each_cell_reads_as_if_it_had_been_alone(tmp_path):
    events, said = played(tmp_path, groups(), engines=4, meet=4)
    assert Counter(e.kind for e in events)["engine.start"] == 4
    for key in "ab":
        order = kinds(events, key, "baseline.begin", "baseline.end", "cell.begin", "cell.end")
        assert order == ["baseline.begin", "baseline.end", *["cell.begin", "cell.end"] * 2]
    assert finished(events) == {"a-x", "a-y", "b-x", "b-y"}
    assert len(re.findall(r"^\[\d/\d\] .* (?:inconclusive|error).* \w-\w", said, re.M)) == 4, "each has its line"


def test_cells_whose_plain_engine_failed_are_not_played_and_the_others_are(tmp_path):
    (one, other), refused = groups(), EngineRefused("no room")
    events, _ = played(tmp_path, [one, other], engines=1, fails={("start", "a.plain.1.1"): refused})
    assert finished(events) == {"b-x", "b-y"}
    assert not kinds(events, "a", "cell.begin")
    assert {cell.id for cell in judge(events).cells} == {"a-x", "a-y", "b-x", "b-y"}


def test_keys_that_start_all_their_engines_wait_for_nobody(tmp_path):
    events, _ = played(tmp_path, [[Part(key, {f"{key}-x": own()}, 2)] for key in "ab"], engines=4)
    assert finished(events) == {"a-x", "b-x"}


def test_an_error_of_the_rig_in_one_key_ends_the_others_which_say_nothing_more(tmp_path):
    full = RigError("the disk is full")
    with pytest.raises(RigError, match="the disk is full"):
        played(tmp_path, groups(), engines=4, stuck="b", fails={("send", "a", "alone"): full})
    events = read(tmp_path / "recording.jsonl")
    assert not finished(events)
    assert not [event for event in events if event.kind in ("note", "engine.failed", "cell.begin")]
