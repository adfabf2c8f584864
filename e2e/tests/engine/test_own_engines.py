"""A story that starts its own engines, on real ones: what one stored and was killed over, another serves.

The scenario is made here: a new one is one class and one entry of the table."""

from __future__ import annotations

import subprocess
import sys

import pytest

from e2e.tests.engine.conftest import Ran, Rig, left_of

pytestmark = [pytest.mark.engine, pytest.mark.timeout(900)]

STORY = """
from e2e.base.program import Break, Cold, Like, Loaded, Mend, Program, Send, Served, Site, Start, Stop, Text
from e2e.scenarios.table import SCENARIOS

class Restart:
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

SCENARIOS["restart"] = Restart()
from e2e.cli import main
main()
"""
CELL = "layout=HND,storage_format=chunkwise,overlap=off,placement=index"


def test_what_a_killed_engine_stored_is_served_by_another(tmp_path):
    rig, out = Rig(tmp_path / "state"), tmp_path / "out"
    words = ("run", "--out", str(out), "--cell", CELL, "--scenario", "restart", "--prompts", "1", "--max-tokens", "4")
    done = subprocess.run(
        [sys.executable, "-c", STORY, *words], env=rig.environ, text=True, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, timeout=600, check=False,
    )  # fmt: skip
    ran = Ran(done.returncode, done.stdout, out)
    (name, cell), *_ = ran.cells.items()
    assert name.endswith("-scenario_restart")
    assert cell["verdict"] == "pass", done.stdout
    assert ran.code == 0
    starts = {event["role"]: event.get("cell") for event in ran.events("engine.start")}
    assert starts == {"plain": None, "one": name, "two": name}
    stops = {event["engine"].split(".")[1]: event["graceful"] for event in ran.events("engine.stop")}
    assert (stops["one"], stops["two"]) == (False, True)
    assert not left_of(ran.events("run.begin")[0]["run_id"])
