"""Real Ray, and stand-ins for what its tasks run: a node or a driver dies when a share is halfway.

On real engines: e2e/tests/engine/test_ray_cluster.py.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

import psutil
import pytest

from e2e.base.event import Event
from e2e.judge import judge
from e2e.recording.gather import write
from e2e.recording.journal import read
from e2e.stack.owned import MARK, RunFile, marked
from e2e.stack.reaper import reap
from e2e.tests.kill.fleet_to_kill import STANDIN, drive
from e2e.tests.kill.share_to_kill import SOURCE
from e2e.tests.kill.two_nodes import two_nodes
from e2e.waits import Outcome, wait

sys.path.insert(0, str(Path(__file__).parents[1] / "unit" / "golden"))
import golden
from shards import parted

pytest.importorskip("ray")
pytestmark = [pytest.mark.kill, pytest.mark.long, pytest.mark.timeout(900)]
TMP = tempfile.gettempdir()


@pytest.fixture(scope="module")
def real() -> list[Event]:
    return read(golden.recording("grid"))


@pytest.fixture
def source(tmp_path, real, monkeypatch) -> Path:
    """The folder of what two shares are to record."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    folder = tmp_path / "source"
    for number, events in enumerate(parted(real).values(), start=1):
        write(folder / f"{number}.jsonl", events)
    return folder


def until(condition: Callable[[], object], what: str, limit_s: float = 300) -> None:
    assert wait(lambda: bool(condition()), limit_s=limit_s) is Outcome.READY, f"{what} did not come"


def standins(source: Path) -> Iterator[tuple[psutil.Process, str]]:
    """Those of this test, with the number of the share."""
    for process in marked(SOURCE, str(source)):
        with suppress(psutil.Error):
            if str(STANDIN) in (line := process.cmdline()):
                yield process, line[-2]


def halfway(out: Path, source: Path, number: int) -> bool:
    whole, now = source / f"{number}.jsonl", out / "shares" / f"{number}-of-2" / "recording.jsonl"
    lines = len(whole.read_bytes().splitlines())
    return now.exists() and len(now.read_bytes().splitlines()) == lines // 2


def assert_next_start_cleans(state: Path) -> None:
    """Files, that is: Ray may end the reaper of a task with its node, or while it starts."""
    runs = [run for path in state.glob("*.json") if (run := RunFile.read(path))]
    reap(state_dir=state)
    assert not [folder for run in runs for folder in run.folders if Path(folder).exists()]
    assert not [*state.glob("*.json")]


def test_a_node_that_dies_costs_nothing(tmp_path, source, real, monkeypatch, capsys) -> None:
    out, killed = tmp_path / "out", []
    with two_nodes() as (cluster, nodes):

        def kill_one() -> None:
            until(lambda: all(halfway(out, source, number) for number in (1, 2)), "the middle of both")
            process, number = next(standins(source))
            node = next(nodes[parent.pid] for parent in process.parents() if parent.pid in nodes)
            cluster.remove_node(node, allow_graceful=False)
            until(lambda: not process.is_running(), "the end of what the dead node ran")
            (source / "go").touch()
            killed.append(number)

        killer = threading.Thread(target=kill_one)
        killer.start()
        monkeypatch.setenv("RAY_ADDRESS", cluster.address)
        drive(source, out, run_id=f"ray-{uuid.uuid4().hex[:8]}")
        killer.join()
    (number,) = killed
    said = capsys.readouterr().err
    half, lines = (len((source / f"{number}.jsonl").read_bytes().splitlines()) // n for n in (2, 1))
    assert f"key{number}: goes on behind {half} of {lines} lines" in said
    assert said.count("another task goes on with it") == 1
    assert not [*standins(source)]
    assert_next_start_cleans(tmp_path / "state" / "maru-e2e" / "runs")
    found, whole = ([asdict(cell) for cell in judge(of).cells] for of in (read(out / "recording.jsonl"), real))
    for cell, was in zip(found, whole, strict=True):
        cell.pop("attempt"), was.pop("attempt")
        assert cell == was


@pytest.mark.parametrize(("number", "code"), [(signal.SIGKILL, -9), (signal.SIGTERM, 143)])
def test_a_driver_that_is_ended_leaves_nothing(tmp_path, source, number, code) -> None:
    out, run_id = tmp_path / "out", f"ray-{uuid.uuid4().hex[:8]}"
    argv = [sys.executable, "-m", "e2e.tests.kill.fleet_to_kill", str(source), str(out), run_id]
    environ = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
    driver = subprocess.Popen(argv, env=environ, start_new_session=True)
    try:
        until(lambda: driver.poll() is not None or halfway(out, source, 1), "the middle of the first")
        assert driver.poll() is None
        assert [*marked(MARK, run_id)], "Ray's own processes carry our mark"
        driver.send_signal(number)
        assert driver.wait(180) == code
    finally:
        driver.kill()
        driver.wait(30)
    until(lambda: not [*marked(MARK, run_id)], "the end of Ray")
    until(lambda: not [*standins(source)], "the end of what its node ran")
    until(lambda: not Path(TMP, f"maru-e2e-{run_id}").exists(), "the end of Ray's folder")
    assert_next_start_cleans(tmp_path / "state" / "maru-e2e" / "runs")
