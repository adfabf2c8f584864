"""kill -9 of the rig: nothing of it is left, by its watchdog at once, or else by the next start."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from e2e.stack.model import prepare_model
from e2e.stack.owned import MARK, marked
from e2e.stack.reaper import reap, shared_memory_of
from e2e.waits import Outcome, wait

HERE = Path(__file__).parent
STAND_IN = HERE.parent / "unit" / "stack" / "stand_in_server.py"


@dataclass
class Rig:
    process: subprocess.Popen
    run_id: str
    state: Path
    port: int
    watchdog: psutil.Process
    folder: Path
    zygote: psutil.Process | None
    segments: set[str]

    def left(self) -> list[str]:
        """All that may not outlive the rig, by name."""
        found = [f"process {process.pid}" for process in marked(MARK, self.run_id)]
        folders = (self.folder, Path("/dev/shm") / self.folder.name, self.state / f"{self.run_id}.json")
        found += [str(path) for path in folders if path.exists()]
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                found.append(f"port {self.port}")
        return found + [path for path in self.segments if Path(path).exists()]


@pytest.fixture
def rig(tmp_path):
    """rig(model, limit_s, how, **environment) -> a ready Rig in a process of its own."""
    rigs = []

    def rig(model, limit_s, how, **environment):
        run_id = f"kill-{os.getpid()}-{len(rigs)}-{tmp_path.name[-8:]}"
        command = [sys.executable, str(HERE / "rig_to_kill.py"), run_id, str(tmp_path), model, str(limit_s), how]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, **environment})
        rigs.append(process)
        words = process.stdout.readline().split()
        assert words[:1] == ["ready"]
        port, watchdog = int(words[1]), psutil.Process(int(words[2]))
        zygote = psutil.Process(int(words[4])) if how == "fork" else None
        segments = shared_memory_of(marked(MARK, run_id))
        return Rig(process, run_id, tmp_path / "state", port, watchdog, Path(words[3]), zygote, segments)

    yield rig
    for process in rigs:
        process.kill()
        process.wait()
        process.stdout.close()
    assert wait(lambda: not list((tmp_path / "state").glob("*.json")), limit_s=60) is Outcome.READY


@pytest.fixture
def stand_in(tmp_path):
    package = tmp_path / "stand_in" / "vllm" / "entrypoints" / "openai"
    package.mkdir(parents=True)
    shutil.copy(STAND_IN, package / "api_server.py")
    for folder in (package, package.parent, package.parent.parent):
        (folder / "__init__.py").touch()
    path = os.pathsep.join((str(tmp_path / "stand_in"), str(HERE.parents[2])))
    return {"PYTHONPATH": path, "STAND_IN": "ready", "STAND_IN_CHILD": "1"}


#: Two processes, two folders, run file, port; and the zygote.
LEFT = {"stock": 6, "fork": 7}


@pytest.mark.kill
@pytest.mark.parametrize(
    ("ending", "how"),
    [(signal.SIGKILL, "stock"), (signal.SIGTERM, "stock"), (signal.SIGHUP, "stock"), (signal.SIGKILL, "fork")],
)
def test_the_watchdog_reaps_at_once(rig, stand_in, ending, how):
    one = rig("none/such", 30, how, **stand_in)
    assert len(one.left()) == LEFT[how], one.left()
    one.process.send_signal(ending)
    assert wait(lambda: not one.left(), limit_s=20) is Outcome.READY, one.left()


@pytest.mark.kill
@pytest.mark.parametrize("how", LEFT)
def test_the_next_start_reaps_when_the_watchdog_died_too(rig, stand_in, how):
    one = rig("none/such", 30, how, **stand_in)
    assert len(one.left()) == LEFT[how], one.left()
    one.watchdog.kill()
    one.process.kill()
    one.process.wait()
    # without a watchdog, too, a zygote and its engine end with the rig; what the engine had started stays
    left = {"stock": 2, "fork": 1}[how]
    assert wait(lambda: len(list(marked(MARK, one.run_id))) == left, limit_s=10) is Outcome.READY, one.left()
    (reaped,) = reap(state_dir=one.state)
    assert (reaped.run_id, len(reaped.processes), len(reaped.paths)) == (one.run_id, left, 2)
    assert not one.left()


@pytest.mark.kill
def test_a_killed_zygote_ends_its_engine_and_the_rig_the_rest(rig, stand_in):
    one = rig("none/such", 30, "fork", **stand_in)
    one.zygote.kill()
    assert wait(lambda: len(list(marked(MARK, one.run_id))) == 1, limit_s=10) is Outcome.READY, one.left()
    one.process.kill()
    assert wait(lambda: not one.left(), limit_s=20) is Outcome.READY, one.left()


@pytest.mark.kill
@pytest.mark.engine
@pytest.mark.parametrize(
    ("how", "shared"),
    # a semaphore that only forks use has no name
    [("fork", {"/dev/shm/psm"}), ("stock", {"/dev/shm/psm", "/dev/shm/sem.mp"})],
)
def test_nothing_of_a_real_engine_is_left(rig, how, shared):
    one = rig(prepare_model("smollm2"), 240, how)
    assert len(list(marked(MARK, one.run_id))) >= 3 + bool(one.zygote)  # API server, engine core, worker
    kinds = {path.partition("-")[0].partition("_")[0] for path in one.segments}
    assert kinds == shared, one.segments
    one.process.kill()
    assert wait(lambda: not one.left(), limit_s=30) is Outcome.READY, one.left()
