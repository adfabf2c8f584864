"""A story that starts its own engines, on real ones: what one stored and was killed over, another serves.

The scenario is made here: a new one is one class and one entry of the table."""

from __future__ import annotations

import subprocess
import sys

import pytest

from e2e.tests.engine.conftest import Ran, Rig, left_of

pytestmark = [pytest.mark.engine, pytest.mark.long, pytest.mark.timeout(900)]

STORIES = """
from e2e.base.program import Break, Cold, Like, Loaded, Program, Send, Served, Site, Start, Stop, Text, Together
from e2e.scenarios.sized import Scenario
from e2e.scenarios.table import SCENARIOS

class Restart(Scenario):
    name = "restart"

    def program(self, cell):
        texts, every = tuple(map(Text, cell.lengths)), tuple(range(len(cell.lengths)))
        plain = Site("plain", connector=False, store=None)
        one, two = Site("one"), Site("two")
        alone = Send("cold", "plain", every, (Cold(),))
        cold = Send("cold", "one", every, (Cold(), Like((alone.where,))))
        hits = Served(True, tuple(cell.hit(n) for n in cell.lengths))
        warm = Send("warm", "two", every, (hits, Loaded(cold.where), Like((alone.where, cold.where))))
        steps = (alone, Start("one"), cold, Stop("one", killed=True), Start("two"), warm, Stop("two"))
        return Program((plain, one, two), texts, steps, self.name)

class Struck(Scenario):
    name = "struck"

    def program(self, cell):
        texts, one = (Text(cell.lengths[0]), Text(cell.lengths[0])), Site("one")
        cold = Send("cold", "one", (0,), (Cold(),))
        gone = Send("gone", "one", (1,), (Cold(),), gone_s=0.2, answer=200, salt="gone")
        hot = Send("hot", "one", (1,), (Cold(),), answer=200, salt="hot")
        struck = Together((hot, Break("engine", "kill", "one", after_s=1.0)))
        hits = Served(True, (cell.hit(cell.lengths[0]),))
        warm = Send("warm", "one", (0,), (hits, Loaded(cold.where), Like((cold.where,))))
        steps = (Start("one"), cold, gone, struck, Stop("one"), Start("one"), warm)
        return Program((one,), texts, steps, self.name)

SCENARIOS.update(restart=Restart(), struck=Struck())
from e2e.cli import main
main()
"""
CELL = "layout=HND,storage_format=chunkwise,overlap=off,placement=index"


@pytest.fixture
def told(tmp_path):
    """told(scenario) -> what became of one cell that plays it."""

    def told(scenario: str) -> Ran:
        rig, out = Rig(tmp_path / "state"), tmp_path / "out"
        words = ("--cell", CELL, "--scenario", scenario, "--prompts", "1", "--max-tokens", "4")
        done = subprocess.run(
            [sys.executable, "-c", STORIES, "run", "--out", str(out), *words], env=rig.environ, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=600, check=False,
        )  # fmt: skip
        ran = Ran(done.returncode, done.stdout, out)
        assert not left_of(ran.events("run.begin")[0]["run_id"])
        return ran

    return told


def test_what_a_killed_engine_stored_is_served_by_another(told):
    ran = told("restart")
    (name, cell), *_ = ran.cells.items()
    assert name.endswith("-scenario_restart")
    assert cell["verdict"] == "pass", ran.said
    assert ran.code == 0
    starts = {event["role"]: event.get("cell") for event in ran.events("engine.start")}
    assert starts == {"plain": None, "one": name, "two": name}
    stops = {event["engine"].split(".")[1]: event["graceful"] for event in ran.events("engine.stop")}
    assert (stops["one"], stops["two"]) == (False, True)


def test_a_client_that_leaves_and_an_engine_that_is_struck_end_no_story(told):
    ran = told("struck")
    failed = [event["error"] for event in ran.events("request.failed")]
    assert failed == ["ClientGone", "EngineCrashed"], ran.said
    assert [(event["arm"], event["what"], event["count"]) for event in ran.events("step.seen")] == [("gone", "gone", 1)]
    assert len(ran.events("nemesis.begin")) == len(ran.events("nemesis.end")) == 1
    assert len(ran.events("engine.start")) == len(ran.events("engine.stop")) == 2
    assert [event["arm"] for event in ran.events("arm.end")] == ["cold", "gone", "hot", "warm"]
    assert len(ran.events("cell.end")) == 1
    (loads,) = [event["loads"] for event in ran.events("connector.evidence") if event["arm"] == "warm"]
    assert loads, "what the engine had stored before it was struck is served by the next one"
