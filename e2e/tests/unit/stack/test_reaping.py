"""What a dead run left is ended; what looks alike but is not ours stays."""

from __future__ import annotations

import mmap
import os
import signal
import subprocess
import sys
from multiprocessing import shared_memory
from pathlib import Path

import psutil
import pytest

from e2e.base.errors import RigError, UsageError
from e2e.base.redact import HIDDEN
from e2e.stack.confided import WITHDRAWN
from e2e.stack.ledger import Ledger
from e2e.stack.owned import MARK, OWNER_FILE, RunFile, default_state_dir, here, living, stamp
from e2e.stack.reaper import reap, reap_run, remove_segments, shared_memory_of
from e2e.waits import Outcome, wait

SLEEP = [sys.executable, "-c", "import time; print('up', flush=True); time.sleep(600)"]


@pytest.fixture
def sleeper():
    """sleeper(run_id or None) -> a process that sleeps, with that mark."""
    started = []

    def sleeper(mark):
        env = {key: value for key, value in os.environ.items() if key != MARK} | ({MARK: mark} if mark else {})
        started.append(subprocess.Popen(SLEEP, env=env, stdout=subprocess.PIPE, text=True))
        assert started[-1].stdout.readline() == "up\n"
        return started[-1]

    yield sleeper
    for process in started:
        process.kill()
        process.wait()
        process.stdout.close()


@pytest.fixture
def dead_owner():
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    owner = stamp(process.pid)
    process.communicate(b"\n")
    return owner


@pytest.fixture
def state(tmp_path):
    (tmp_path / "state").mkdir()
    return tmp_path / "state"


def leave(state, run_id, owner, **what) -> Path:
    path = state / f"{run_id}.json"
    RunFile(run_id=run_id, where=what.pop("where", here()), owner=owner, **what).write(path)
    return path


def sign(folder, run_id):
    folder.mkdir()
    (folder / OWNER_FILE).write_text(run_id)
    (folder / "pool").mkdir()
    (folder / "pool" / "data").write_text("x")
    return folder


def test_a_dead_runs_processes_are_killed_and_strangers_are_not(state, run_id, dead_owner, sleeper):
    path = leave(state, run_id, dead_owner)
    ours, unmarked, other_run = sleeper(run_id), sleeper(None), sleeper(f"{run_id}-other")
    (reaped,) = reap(state_dir=state)
    assert reaped.processes == [ours.pid]
    ours.wait(timeout=5)  # raises when it lives
    assert unmarked.poll() is None
    assert other_run.poll() is None
    assert not path.exists()
    assert reap(state_dir=state) == []


def test_a_living_owner_is_left_alone(state, run_id, sleeper):
    path = leave(state, run_id, stamp(os.getpid()))
    process = sleeper(run_id)
    assert reap(state_dir=state) == []
    assert process.poll() is None
    assert path.exists()


def test_a_pid_that_passed_to_another_process_is_no_owner(state, run_id, sleeper):
    process = sleeper(run_id)
    leave(state, run_id, stamp(os.getpid()) | {"created": 1.0})
    assert living({"pid": os.getpid(), "created": 1.0}) is None
    assert reap(state_dir=state)[0].processes == [process.pid]


def test_a_run_of_another_machine_or_container_is_left_alone(state, run_id, dead_owner, sleeper):
    path = leave(state, run_id, dead_owner, where="elsewhere/pid:[1]")
    process = sleeper(run_id)
    assert reap(state_dir=state) == []
    assert process.poll() is None
    assert path.exists()


def test_only_signed_folders_of_the_run_are_removed(tmp_path, state, run_id, dead_owner):
    ours = sign(tmp_path / f"maru-e2e-{run_id}", run_id)
    (tmp_path / "b").mkdir()
    unsigned = tmp_path / "b" / f"maru-e2e-{run_id}"
    unsigned.mkdir()
    (unsigned / "theirs").touch()
    (tmp_path / "c").mkdir()
    others = sign(tmp_path / "c" / f"maru-e2e-{run_id}", "another run")
    elsewhere = sign(tmp_path / "data", run_id)
    (tmp_path / "d").mkdir()
    linked = tmp_path / "d" / f"maru-e2e-{run_id}"
    linked.symlink_to(elsewhere)
    leave(state, run_id, dead_owner, folders=[str(path) for path in (ours, unsigned, others, elsewhere, linked)])
    (reaped,) = reap(state_dir=state)
    assert reaped.paths == [str(ours)]
    assert not ours.exists()
    assert all(path.exists() for path in (unsigned, others, elsewhere / "pool" / "data", linked))


def test_a_folder_that_died_unborn_is_removed(tmp_path, state, run_id, dead_owner):
    folder = tmp_path / f"maru-e2e-{run_id}"
    folder.mkdir()
    leave(state, run_id, dead_owner, folders=[str(folder)])
    reap(state_dir=state)
    assert not folder.exists()


def test_shared_memory_is_removed_when_it_was_ours_and_nobody_holds_it(state, run_id, dead_owner):
    ours, held = (shared_memory.SharedMemory(create=True, size=64) for _ in range(2))
    path, held_path = f"/dev/shm/{ours.name}", f"/dev/shm/{held.name}"
    try:
        assert {path, held_path} <= shared_memory_of([psutil.Process()])
        ours.close()
        leave(state, run_id, dead_owner, shared_memory=[path, held_path, "/dev/shm/not_pythons"])
        (reaped,) = reap(state_dir=state)
        assert reaped.paths == [path]
        assert Path(held_path).exists()
    finally:
        held.close()
        held.unlink()
        if Path(path).exists():
            ours.unlink()


def test_what_vllms_ranks_share_is_shared_memory_too():
    path = Path("/dev/shm") / f"vllm_dist_{os.getpid()}-tp:0-[0-1]-cpushm_0"
    path.write_bytes(bytes(64))
    try:
        with path.open("r+b") as file, mmap.mmap(file.fileno(), 64):
            assert str(path) in shared_memory_of([psutil.Process()])
            assert remove_segments([str(path)]) == []
        assert remove_segments([str(path)]) == [str(path)]
    finally:
        path.unlink(missing_ok=True)


def test_other_names_in_shared_memory_are_never_touched(tmp_path):
    stranger = Path("/dev/shm") / f"stranger-{os.getpid()}"
    stranger.touch()
    try:
        assert remove_segments([str(stranger)]) == []
        assert stranger.exists()
    finally:
        stranger.unlink()


KEY = "k9-0123456789abcdef"


def test_logs_of_a_dead_run_lose_what_is_known_or_all(tmp_path, state, run_id, dead_owner):
    """A later start does not know what was confided, so nothing of what may hold it stays."""
    logs = tmp_path / "logs"
    logs.mkdir()
    named = [logs / f"a.connector.1.1{kind}" for kind in (".log", ".maru-server.log", ".port-taken.log")]
    other = logs / "a.connector.1.10.log"
    for path in (*named, other):
        path.write_text(f"before {KEY} after")
    told = {"logs": [str(logs / "a.connector.1.1")]}
    reap_run(RunFile(run_id=run_id, where=here(), owner=dead_owner, **told), secrets={KEY})
    assert [path.read_text() for path in named] == [f"before {HIDDEN} after"] * 3
    named[0].write_text(f"before {KEY} after")
    leave(state, run_id, dead_owner, **told)
    reap(state_dir=state)
    assert [path.read_text() for path in named] == [WITHDRAWN] * 3
    assert other.read_text() == f"before {KEY} after"


RIG = """
import os, sys, time
from pathlib import Path
from e2e.stack.ledger import Ledger
state, key = Path(sys.argv[1]), sys.argv[2]
ledger = Ledger(run_id=sys.argv[3], state_dir=state)
ledger.confide(Path("logs/a.connector.1.1"), frozenset({key}))
Path("logs").mkdir()
Path("logs/a.connector.1.1.log").write_text(f"before {key} after")
print(ledger._watchdog.pid, flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("watchdog_too", [False, True])
def test_after_kill_9_no_log_holds_what_an_engine_was_told(tmp_path, state, run_id, watchdog_too):
    argv = [sys.executable, "-c", RIG, str(state), KEY, run_id]
    with subprocess.Popen(argv, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as rig:
        watchdog = int(rig.stdout.readline())
        assert KEY not in (state / f"{run_id}.json").read_text()
        if watchdog_too:
            os.kill(watchdog, signal.SIGKILL)
        rig.kill()
    if watchdog_too:
        reap(state_dir=state)
    log = tmp_path / "logs" / "a.connector.1.1.log"
    left = WITHDRAWN if watchdog_too else f"before {HIDDEN} after"
    assert wait(lambda: log.read_text() == left, limit_s=30) is Outcome.READY, log.read_text()
    assert wait(lambda: not list(state.glob("*.json")), limit_s=30) is Outcome.READY


def test_a_living_run_takes_it_out_itself(tmp_path, state, run_id):
    log = tmp_path / "a.connector.1.1.log"
    with Ledger(run_id=run_id, state_dir=state) as ledger:
        ledger.confide(log.with_suffix(""), frozenset({KEY}))
        log.write_text(f"before {KEY} after")
        ledger.hide(log.with_suffix(""))
        assert log.read_text() == f"before {HIDDEN} after"
        assert RunFile.read(ledger.path).logs == []
        ledger.confide(log.with_suffix(""), frozenset())
        log.write_text(f"an engine that nobody stopped says {KEY}")
    assert KEY not in log.read_text()


def test_files_that_are_no_run_files_are_left(state):
    for name, text in {"a.json": "{", "b.json": "[]", "c.json": '{"run_id": 1}'}.items():
        (state / name).write_text(text)
    assert reap(state_dir=state) == []
    assert len(list(state.iterdir())) == 3


def test_no_state_folder_is_nothing_to_reap(tmp_path):
    assert reap(state_dir=tmp_path / "none") == []


def test_reaping_twice_at_once_is_harmless(state, run_id, dead_owner, tmp_path):
    folder = sign(tmp_path / f"maru-e2e-{run_id}", run_id)
    run = RunFile(run_id=run_id, where=here(), owner=dead_owner, folders=[str(folder)])
    assert reap_run(run).paths == [str(folder)]
    assert not reap_run(run)


def test_a_ledger_removes_what_it_made(tmp_path, run_id, sleeper):
    with Ledger(run_id=run_id, state_dir=tmp_path / "state") as ledger:
        pool = ledger.folder(tmp_path, "HND.connector.1/pool")
        assert pool.is_dir()
        assert not any(pool.iterdir())
        (pool / "chunk").write_text("x")
        assert str(tmp_path / f"maru-e2e-{run_id}") in ledger.path.read_text()
        process = sleeper(run_id)
        watchdog = ledger._watchdog
    process.wait(timeout=5)  # raises when it lives
    assert watchdog.poll() == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["state"]
    assert not any((tmp_path / "state").glob("*.json"))


def test_two_living_runs_cannot_share_an_id(ledger):
    with pytest.raises(UsageError, match="already going on"):
        Ledger(run_id=ledger.run_id, state_dir=ledger.path.parent)


@pytest.mark.parametrize("wrong", ["", "a/b", "..", "x" * 41, "a b"])
def test_ids_that_are_no_names(wrong, tmp_path):
    with pytest.raises(UsageError, match="run id"):
        Ledger(run_id=wrong, state_dir=tmp_path)


def test_places_that_cannot_be_made(ledger, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="can't be made"):
        ledger.folder(tmp_path / "file", "pool")
    with pytest.raises(UsageError, match="can't be made"):
        Ledger(run_id="x", state_dir=tmp_path / "file" / "state")


def test_a_full_disk_is_one_sentence(tmp_path):
    with pytest.raises(RigError, match="can't be written"):
        RunFile(run_id="x", where="", owner={}).write(tmp_path / "none" / "x.json")


def test_where_the_state_is_kept():
    assert default_state_dir({"XDG_STATE_HOME": "/s"}) == Path("/s/maru-e2e/runs")
    assert default_state_dir({"HOME": "/h"}) == Path("/h/.local/state/maru-e2e/runs")
