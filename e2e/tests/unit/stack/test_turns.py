"""Runs share a machine, a timed one has it to itself, and whoever waits for its turn waits within a limit."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import pytest

from e2e.base.errors import UsageError
from e2e.stack import turns
from e2e.stack.ledger import Ledger
from e2e.stack.owned import RunFile


@pytest.fixture
def state(tmp_path, monkeypatch):
    monkeypatch.setattr(turns, "LIMIT_S", 0.3)
    return tmp_path / "state"


def test_runs_that_time_nothing_share_the_machine(state):
    with Ledger(run_id="one", state_dir=state), Ledger(run_id="other", state_dir=state):
        assert len(turns.others(state)) == 2


def test_a_timed_run_is_refused_beside_another_one_which_is_named(state):
    said = rf"another run of the rig \(process {os.getpid()}\) has engines .* not end within 0.3 s; start again"
    with (
        Ledger(run_id="one", state_dir=state),
        pytest.raises(UsageError, match=said.replace("; start", ", start")),
        Ledger(run_id="timed", state_dir=state, alone=True),
    ):
        pytest.fail("it began")
    assert not turns.others(state), "it left nothing"


def test_no_run_begins_beside_a_timed_one(state):
    for alone in (True, False):
        with (
            Ledger(run_id="timed", state_dir=state, alone=True),
            pytest.raises(UsageError, match="start again once it has"),
            Ledger(run_id="other", state_dir=state, alone=alone),
        ):
            pytest.fail("it began")
    with Ledger(run_id="other", state_dir=state, alone=True):
        assert [run.run_id for run in turns.others(state)] == ["other"], "the machine is free again"


def test_it_waits_for_the_end_of_another_one(state, monkeypatch):
    monkeypatch.setattr(turns, "LIMIT_S", 30)
    other, began = Ledger(run_id="other", state_dir=state), threading.Event()

    def timed():
        with Ledger(run_id="timed", state_dir=state, alone=True):
            began.set()

    thread = threading.Thread(target=timed)
    thread.start()
    assert not began.wait(0.3)
    other.close()
    thread.join(30)
    assert began.is_set()


def test_a_dead_run_is_beside_nobody_unless_it_left_something(state):
    state.mkdir()
    left = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, env={turns.MARK: "dead"})
    try:
        RunFile(run_id="dead", where=turns.here(), owner={"pid": 2**22 + 1, "created": 0.0}).write(state / "dead.json")
        with pytest.raises(UsageError, match="has engines on this machine"):
            turns.take(state, alone=True)
    finally:
        left.kill()
        left.wait(10)
    os.close(turns.take(state, alone=True))
