"""Which steps and cells still run after what went wrong, and that nothing that was started or broken stays so."""

from __future__ import annotations

import io
import os
import re
import signal
import threading
import time
from collections import Counter
from pathlib import Path

import pytest
from fake import ONE, TEXTS, FakeEngine, FakeWorld, Key, again, lent, own, send
from hypothesis import given, settings
from hypothesis import strategies as st
from made import STEPS, SUSPEND, buildable
from msgspec.structs import replace

from e2e.base.connector import Abilities, HitRule
from e2e.base.errors import EngineAnswer, EngineCrashed, EngineError, EngineRefused, EngineTimeout, Stopped
from e2e.base.event import REQUIRED
from e2e.base.program import Break, Empty, Mend, Program, Site, Start, Stop, Together, plainly
from e2e.play.player import After, Player
from e2e.recording.journal import Journal, read
from e2e.recording.resume import finished
from e2e.report.progress import Progress
from e2e.scenarios.sized import Sized
from e2e.scenarios.table import SCENARIOS, STORIES
from e2e.standing import Standing


class Played:
    def __init__(self, folder: Path, *keys: Key, fails=(), fails_at=(), after=(), groups=None):
        self.screen, self.folder = io.StringIO(), folder
        with Journal(folder / "recording.jsonl") as journal, Progress(self.screen, {"cell": 9}) as progress:
            standing = Standing(journal.record, directory=folder)
            self.world = FakeWorld(standing.record, dict(fails), dict(fails_at))
            self.player = Player(self.world, standing, progress, 1, progress.say)
            for key in keys:
                for cell, program in key.programs.items():
                    standing.record("plan.cell", **planned(key.key, cell, program))
            self.stopped = None
            try:
                for group in [[key] for key in keys] if groups is None else groups:
                    for part in self.player.plain(group):
                        self.player.cells(part, after=after)
            except BaseException as error:
                self.stopped = error
        self.events = read(folder / "recording.jsonl")

    def of(self, kind: str, name: str) -> list:
        return [event.data.get(name) for event in self.events if event.kind == kind]

    @property
    def sent(self) -> list:
        return [what[1:] for what in self.world.did if what[0] == "send"]

    @property
    def judged(self) -> list[str]:
        """Cells in the order in which each got its line."""
        found = (
            re.match(r"\[\d/\d\] \S+ (?:pass|corrupt|inconclusive|error).*? (\w-\w)\b", line) for line in self.lines
        )
        return [match[1] for match in found if match]

    @property
    def lines(self) -> list[str]:
        return self.screen.getvalue().splitlines()


def planned(key: str, cell: str, program: Program) -> dict:
    rest = dict.fromkeys(REQUIRED["plan.cell"])
    lists = {"lengths": [text.tokens for text in program.texts], "blind": []}
    return rest | lists | {
        "cell": cell, "attempt": 1, "engine_key": key, "settings": {}, "expect": {}, "adapter": "a",
        "oracle": "aligned", "counters": False, "baseline": True, "deterministic": True, "digests": False,
        "program": plainly(program), "program_digest": program.digest, "scenario": program.scenario,
    }  # fmt: skip


def key(name: str, program: Program, *cells: str) -> Key:
    return Key(name, {f"{name}-{cell}": program for cell in cells or ("a", "b")})


def test_lent_engines_are_started_once_and_the_plain_one_first(tmp_path):
    played = Played(tmp_path, key("K", lent()))
    starts = [what[1:] for what in played.world.did if what[0] == "start"]
    assert starts == [("K.plain.1.1",), ("store", "K.one.1.2"), ("K.one.1.2",)]
    assert played.sent == [("K", "alone"), *((cell, name) for cell in ("K-a", "K-b") for name in ("cold", "again"))]
    assert played.of("baseline.end", "engine") == ["K.plain.1.1"]
    assert played.of("cell.begin", "engine") == played.of("cell.end", "engine") == ["K.one.1.2"] * 2
    assert [line.split("]")[0] for line in played.lines if "K-" in line and "[" in line][-2:] == ["[1/9", "[2/9"]


def test_a_reset_is_told_under_the_name_of_what_comes_next(tmp_path):
    played = Played(tmp_path, key("K", lent(), "a"))
    steps = [what for what in played.world.did if what[0] in ("send", "forget", "scribble") and what[1] == "K-a"]
    assert steps == [
        ("send", "K-a", "cold"), ("forget", "K-a", "again"), ("scribble", "K-a", "again"), ("send", "K-a", "again"),
    ]  # fmt: skip


def test_own_engines_live_as_their_steps_say_and_their_store_as_long_as_the_cell(tmp_path):
    played = Played(tmp_path, key("K", own(), "a"))
    done = [what[:2] for what in played.world.did if what[0] in ("start", "stop", "kill")]
    plain, one = "K.plain.1.1", "K.one.1.2"
    assert done == [
        ("start", plain), ("stop", plain), ("start", "store"), ("start", one), ("kill", one), ("stop", one),
        ("stop", "store"),
    ]  # fmt: skip
    assert played.of("engine.start", "cell") == ["K-a", "K-a"]
    assert played.of("cell.begin", "engine") == [None]
    assert not played.of("baseline.begin", "engine")


def test_two_engines_share_a_store_by_its_name(tmp_path):
    other, third = Site("other"), Site("third", store="else")
    cold = send("cold", ONE)
    steps = (cold, Start("other"), Start("third"), *again(other, cold), Empty("else"))
    played = Played(tmp_path, key("K", Program((ONE, other, third), TEXTS, steps, "second"), "a"))
    stores = [what[2] for what in played.world.did if what[:2] == ("start", "store")]
    assert stores == ["K.one.1.1", "K.third.1.3"]
    assert ("empty", "K.third.1.3") in played.world.did
    assert played.of("store.empty", "store") == ["else"]


@pytest.mark.parametrize("error", [EngineCrashed("gone"), EngineTimeout("hung")])
def test_a_cell_that_brings_its_engine_down_leaves_the_rest_to_another(tmp_path, error):
    played = Played(tmp_path, key("K", lent()), fails={("send", "K-a", "cold"): error})
    assert played.of("cell.begin", "cell") == ["K-a", "K-b"]
    assert played.of("cell.end", "cell") == ["K-b"]
    assert len(set(played.of("cell.begin", "engine"))) == 2
    assert sum("K-a" in line and "inconclusive" in line for line in played.lines) == 1


def test_an_error_that_no_event_holds_is_noted_and_the_engine_goes_on(tmp_path):
    told = EngineAnswer("/metrics can't be read", status=200)
    played = Played(tmp_path, key("K", lent()), fails={("send", "K-a", "again"): told})
    assert played.of("note", "text") == [f"K-a: {told}"]
    assert played.of("cell.end", "cell") == ["K-a", "K-b"]
    assert len(set(played.of("cell.begin", "engine"))) == 1


def test_an_error_that_its_request_holds_is_not_told_twice(tmp_path):
    told = EngineAnswer("refused", status=500)
    told.recorded = True
    played = Played(tmp_path, key("K", lent()), fails={("send", "K-a", "again"): told})
    assert played.of("note", "text") == []


def test_an_engine_that_dies_between_two_steps_ends_its_cell(tmp_path):
    """The step says that nothing answers, the check why."""
    fails = {("forget", "K-a", "again"): EngineAnswer("no", status=500), ("check", "K.one.1.2"): EngineCrashed("OOM")}
    played = Played(tmp_path, key("K", own()), fails=fails)
    assert played.of("cell.end", "cell") == ["K-b"]
    assert any("OOM" in line for line in played.lines)


def test_a_plain_engine_that_fails_gives_up_its_own_cells_only(tmp_path):
    played = Played(tmp_path, key("K", lent()), key("L", lent()), fails={("send", "K", "alone"): EngineTimeout("mute")})
    assert played.of("cell.begin", "cell") == ["L-a", "L-b"]
    assert sum("K-a" in line for line in played.lines) == sum("K-b" in line for line in played.lines) == 1


def test_keys_with_equal_plain_engines_share_one_and_its_failure_stands_under_both_names(tmp_path):
    keys = key("K", lent()), key("L", lent()), key("M", lent())
    fails = {("send", "L", "alone"): EngineAnswer("no", status=500)}
    played = Played(tmp_path, *keys, groups=[keys], fails=fails)
    launched = [e["launcher"] for e in played.events if e.kind == "engine.start" and e["role"] == "plain"]
    assert launched == ["none", "shared: K.plain.1.1", "none"]
    assert played.of("engine.failed", "engine") == ["L.plain.1.2"]
    assert played.of("baseline.end", "engine_key") == ["K", "M"]
    assert {cell[0] for cell in played.of("cell.end", "cell")} == {"K", "M"}


def test_an_own_engine_that_never_gets_ready_leaves_its_cell_to_a_resumed_run(tmp_path):
    played = Played(tmp_path, key("K", own()), fails={("start", "K.one.1.2"): EngineRefused("no")})
    assert played.of("cell.begin", "cell") == ["K-a", "K-b"]
    assert played.of("cell.end", "cell") == ["K-b"]
    assert finished(played.events) == {"K-b"}


def test_an_engine_that_never_gets_ready_ends_its_key(tmp_path):
    played = Played(tmp_path, key("K", lent()), key("L", lent()), fails={("start", "K.one.1.2"): EngineRefused("no")})
    assert played.of("cell.begin", "cell") == ["L-a", "L-b"]
    assert not played.world.running


def test_what_is_broken_is_mended_by_the_program_or_at_its_end(tmp_path):
    mended = own(SUSPEND, send("late", ONE), Mend("server", "suspend", "index"))
    left = own(SUSPEND, send("late", ONE))
    for number, program in enumerate((mended, left)):
        (tmp_path / str(number)).mkdir()
        played = Played(tmp_path / str(number), key("K", program, "a"))
        assert played.of("nemesis.begin", "how") == played.of("nemesis.end", "how") == ["suspend"]
        assert not played.world.running
        did = [what[:3] for what in played.world.did]
        late, stop = did.index(("send", "K-a", "late")), did.index(("stop", "broken", "server"))
        assert did.index(("start", "broken", "server")) < late < stop < did.index(("stop", "store", "K.one.1.2"))
        assert (did.index(("send", "K-a", "again")) > stop) is (program is mended)


def test_at_once_means_that_it_ends_when_all_have_ended(tmp_path):
    beside = Together((send("hot", ONE), Break("engine", "kill", "one", after_s=0.01)))
    played = Played(tmp_path, key("K", own(beside, Stop("one"), Start("one")), "a"))
    did = [what[:3] for what in played.world.did]
    both = (did.index(("send", "K-a", "hot")), did.index(("start", "broken", "engine")))
    assert max(both) < did.index(("stop", "K.one.1.2"))
    assert played.of("cell.end", "cell") == ["K-a"]


def test_of_what_fails_at_once_the_first_is_told_and_the_others_end(tmp_path):
    two = Site("two")
    beside = Together((send("hot", ONE), send("warm", two)))
    fails = {("send", "K-a", "hot"): EngineAnswer("no", status=500)}
    played = Played(tmp_path, key("K", own(Start("two"), beside, more=(two,)), "a"), fails=fails)
    assert {name for _, name in played.sent} == {"alone", "cold", "hot", "warm"}
    assert played.of("note", "text") == ["K-a: no"]


def test_a_store_is_emptied_by_an_engine_that_runs(tmp_path):
    other = Site("other")
    program = own(Start("other"), Stop("other"), Empty("pool"), more=(other,))
    steps = (Start("other"), Stop("other"), *program.steps)
    played = Played(tmp_path, key("K", Program(program.sites, TEXTS, steps, "mix"), "a"))
    (emptied,) = [what[1] for what in played.world.did if what[0] == "empty"]
    assert emptied.split(".")[1] == "one"


def test_a_signal_waits_for_nothing_that_is_on_its_way(tmp_path, monkeypatch):
    hung, sent = threading.Event(), FakeEngine.send

    def send_or_hang(self, scene, step, *, forgiving):
        sent(self, scene, step, forgiving=forgiving)
        if step.name == "hot":
            os.kill(os.getpid(), signal.SIGUSR1)
            hung.wait(60)

    def stop(number, frame):
        raise Stopped(number)

    monkeypatch.setattr(FakeEngine, "send", send_or_hang)
    before = signal.signal(signal.SIGUSR1, stop)
    try:
        late = Break("server", "suspend", "index", after_s=60.0)
        began_s = time.monotonic()
        played = Played(tmp_path, key("K", own(Together((send("hot", ONE), late)))))
        assert time.monotonic() - began_s < 40
    finally:
        signal.signal(signal.SIGUSR1, before)
        hung.set()
    assert isinstance(played.stopped, Stopped)
    assert not played.world.running
    assert played.of("cell.begin", "cell") == ["K-a"]
    assert not played.of("cell.end", "cell")
    assert not played.of("nemesis.begin", "how"), "nothing is broken once the run is over"


def test_a_pool_that_can_not_be_emptied_after_a_cell_costs_the_next_one_its_engine(tmp_path):
    fails = {("tidy", "K.one.1.2"): EngineTimeout("mute")}
    played = Played(tmp_path, key("K", lent()), fails=fails)
    assert played.of("cell.end", "cell") == ["K-a", "K-b"]
    assert len(set(played.of("cell.begin", "engine"))) == 2


def test_what_comes_after_the_cells_is_done_once_on_an_engine_that_lives(tmp_path):
    seen = []
    fails = {("send", "K-b", "cold"): EngineCrashed("gone")}
    after = [After(name, lambda engines, name=name: seen.append((name, *engines))) for name in ("x", "y")]
    played = Played(tmp_path, key("K", lent()), fails=fails, after=after)
    assert seen == [("x", "one"), ("y", "one")]
    assert len([what for what in played.world.did if what[0] == "start" and what[1].startswith("K.one")]) == 2


ERROR = st.sampled_from(
    (
        EngineAnswer("no", status=500), EngineCrashed("gone"), EngineTimeout("hung"), EngineRefused("no"),
        EngineError("else"), Stopped(2), KeyboardInterrupt(), ValueError("ours"),
    )
)  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(pieces=st.lists(STEPS, max_size=14), errors=st.dictionaries(st.integers(1, 60), ERROR, max_size=3))
def test_whatever_happens_nothing_stays_and_every_begin_has_its_end(tmp_path_factory, pieces, errors):
    keys = key("K", buildable(pieces)), key("L", lent())
    played = Played(tmp_path_factory.mktemp("mix"), *keys, fails_at=errors)
    assert not played.world.running
    starts = Counter(what[1:] for what in played.world.did if what[0] == "start")
    assert all(number == 1 for name, number in starts.items() if name[0] != "broken")
    broken = Counter(played.of("nemesis.begin", "target"))
    assert broken == Counter(played.of("nemesis.end", "target"))
    ours = isinstance(played.stopped, (Stopped, KeyboardInterrupt, ValueError))
    assert played.stopped is None or ours
    begun, ended = Counter(played.of("cell.begin", "cell")), Counter(played.of("cell.end", "cell"))
    assert not ended - begun
    assert max(begun.values(), default=0) <= 1
    if ours:
        return
    assert sorted(played.judged) == sorted(cell for each in keys for cell in each.programs)
    if "L" not in played.player.given_up:
        assert begun["L-a"] == begun["L-b"] == 1


def test_a_soak_plays_to_its_end_with_all_its_blows_and_leaves_nothing(tmp_path):
    abilities = {need: "index-server" if need == "breakable" else True for story in STORIES for need in story.needs}
    cell = Sized(
        lengths=(513, 776, 1040), rule=HitRule(256), block_size=16, step=256, answer=8, seed=2, for_s=300.0,
        abilities=Abilities(**abilities), settings={"layout": "HND", "placement": "index"},
    )  # fmt: skip
    program = hurried(SCENARIOS["soak"].program(cell))
    played = Played(tmp_path, Key("K", {"K-a": program}))
    assert played.stopped is None
    assert len(played.sent) == len(program.sends)
    blows = [(step.what, step.how, step.target) for step in program.flat if isinstance(step, Break)]
    words = [tuple(event.data[name] for name in ("what", "how", "target")) for event in played.events
             if event.kind == "nemesis.begin"]  # fmt: skip
    assert words == blows != []
    assert len(played.of("nemesis.end", "what")) == len(blows)
    assert not played.world.running


def hurried(program: Program) -> Program:
    """All of it, a hundred times as fast."""

    def fast(step):
        if isinstance(step, Together):
            return replace(step, steps=tuple(map(fast, step.steps)))
        return replace(step, after_s=step.after_s / 100) if hasattr(step, "after_s") else step

    return replace(program, steps=tuple(map(fast, program.steps)))
