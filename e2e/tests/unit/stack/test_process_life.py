"""Life of an engine process, on a stand-in for vLLM's server: it is process code that is tested."""

from __future__ import annotations

import os
import signal
import socket
import socketserver
import threading
import time
import uuid

import pytest
import requests

from e2e.base.errors import EngineCrashed, EngineRefused, EngineTimeout, SettingsError
from e2e.stack.launcher import Engine, Launcher
from e2e.stack.owned import ENGINE_MARK, MARK, marked
from e2e.stack.process import HeldPort, ProcessLauncher
from e2e.stack.reaper import SHARED
from e2e.stack.spec import EngineSpec
from e2e.waits import Outcome, wait


def processes_of(run_id):
    """Of engines, not of their zygote, by the marks that the kernel shows."""
    return [
        process
        for process in marked(MARK, run_id)
        if (name := process.environ()[ENGINE_MARK]).startswith("HND.") and "\0" not in name
    ]


def test_start_ready_stop(start, recorded, run_id):
    engine = start("ready")
    assert isinstance(engine, Engine)
    engine.wait_ready(20)
    engine.check()
    assert requests.get(f"{engine.url}/health", timeout=5).status_code == 200
    assert [process.pid for process in processes_of(run_id)] == [engine._child.handle.pid]
    engine.stop()
    engine.stop()
    assert not engine.alive()
    assert not processes_of(run_id)
    assert recorded.kinds() == ["engine.start", "engine.ready", "engine.stop"]
    assert recorded.one("engine.stop")["graceful"] is True
    assert recorded.one("engine.start")["argv"][-1] == "--disable-uvicorn-access-log"
    assert recorded.one("engine.ready")["start_s"] > 0


def test_the_start_is_on_record_before_the_process_runs(start, recorded, monkeypatch):
    def refused(*args, **kwargs):
        assert recorded.kinds() == ["engine.start"]
        raise FileNotFoundError(2, "No such file or directory", "python9")

    monkeypatch.setattr("e2e.stack.child.subprocess.Popen", refused)
    with pytest.raises(SettingsError, match=r"can't be run: No such file or directory: python9"):
        start("ready")


def test_one_that_ends_before_it_is_ready(start, recorded):
    engine = start("refuse")
    with pytest.raises(EngineRefused, match="ended before it was ready: ValueError: this engine refuses") as caught:
        engine.wait_ready(20)
    assert caught.value.cause == "ValueError: this engine refuses"
    assert "Traceback" in caught.value.log_tail
    failed = recorded.one("engine.failed")
    assert (failed["stage"], failed["error"], failed["cause"]) == ("start", "EngineRefused", caught.value.cause)


def test_what_one_that_died_before_it_was_ready_had_mapped_goes_with_the_run(start, ledger):
    """Two ranks that could not start left 16 MiB of shared memory."""
    segment = SHARED / f"psm_{uuid.uuid4().hex[:8]}"
    engine = start("mapped", SEGMENT=str(segment))
    with pytest.raises(EngineRefused):
        engine.wait_ready(20)
    assert segment.exists()
    engine.stop()
    ledger.close()
    assert not segment.exists()


def test_one_that_is_too_slow(start, recorded):
    engine = start("silent")
    with pytest.raises(EngineTimeout, match=r"not ready within 2 s; its last word: .*stand-in silent"):
        engine.wait_ready(2)
    assert engine.alive()
    engine.stop()
    assert not engine.alive()
    assert recorded.one("engine.failed")["error"] == "EngineTimeout"


def test_one_that_dies_later(start, recorded):
    engine = start("crash")
    engine.wait_ready(20)
    with pytest.raises(requests.ConnectionError):
        requests.get(f"{engine.url}/crash", timeout=5)
    for _ in range(2):
        with pytest.raises(EngineCrashed, match=r"crashed: it ended with SIGKILL \(out of memory\?\) and said nothing"):
            engine.check(settle_s=5)
    assert recorded.one("engine.failed")["stage"] == "run"
    engine.stop()
    assert recorded.one("engine.stop")["graceful"] is False


def test_one_that_ignores_us_is_killed(start, recorded):
    engine = start("deaf")
    engine.wait_ready(20)
    began = time.monotonic()
    engine.stop(0.5)
    assert not engine.alive()
    assert time.monotonic() - began < 60
    assert recorded.one("engine.stop")["graceful"] is False


def test_a_child_that_left_the_group_is_found(start, run_id):
    engine = start("ready", STAND_IN_CHILD="1")
    engine.wait_ready(20)
    assert len(processes_of(run_id)) == 2
    engine.stop(0.3)
    assert not processes_of(run_id)


def test_a_child_that_outlived_its_parent_is_found(start, run_id):
    engine = start("ready", STAND_IN_CHILD="1")
    engine.wait_ready(20)
    os.kill(engine._child.handle.pid, signal.SIGKILL)
    assert wait(lambda: not engine.alive(), limit_s=5) is Outcome.READY
    assert len(processes_of(run_id)) == 1
    engine.stop(0.3)
    assert not processes_of(run_id)


def test_two_engines_are_stopped_apart(start, run_id):
    one, two = start("ready"), start("ready")
    one.wait_ready(20)
    two.wait_ready(20)
    assert one.url != two.url
    one.stop()
    assert two.alive()
    assert [process.pid for process in processes_of(run_id)] == [two._child.handle.pid]


class Stolen:
    """A port on which a stranger listens, who hangs up on everybody."""

    def __init__(self):
        self.server = socketserver.TCPServer(("127.0.0.1", 0), socketserver.BaseRequestHandler)
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()

    def release(self):
        self.server.shutdown()
        self.server.server_close()


@pytest.mark.parametrize("zygote", ["stock"], indirect=True)
def test_a_stolen_port_is_tried_once_more(start, recorded):
    ports = iter([Stolen, HeldPort])
    engine = start("ready", hold_port=lambda: next(ports)())
    engine.wait_ready(20)
    assert engine.url.endswith(f":{engine.port}")
    assert "was taken in between" in recorded.one("note")["text"]
    assert recorded.kinds().count("engine.start") == 1


@pytest.mark.parametrize("zygote", ["stock"], indirect=True)
def test_a_port_stolen_twice_is_one_sentence(start):
    engine = start("ready", hold_port=Stolen)
    with pytest.raises(EngineRefused, match=r"port \d+ on 127.0.0.1 was taken by another process"):
        engine.wait_ready(20)


@pytest.mark.parametrize("zygote", ["stock"], indirect=True)
def test_an_answer_of_a_stranger_is_not_readiness(start):
    other = start("ready")
    other.wait_ready(20)

    class Same:
        port = other.port

        def release(self):
            pass

    engine = start("silent", hold_port=Same)
    with pytest.raises(EngineTimeout):
        engine.wait_ready(1)


def test_a_held_port_is_refused_to_others_and_open_to_the_engine():
    held = HeldPort()
    try:
        with socket.socket() as stranger, pytest.raises(OSError, match="in use"):
            stranger.bind(("127.0.0.1", held.port))
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", held.port), timeout=5)
        with socket.create_server(("127.0.0.1", held.port)) as server:
            assert server.getsockname()[1] == held.port
            socket.create_connection(("127.0.0.1", held.port), timeout=5).close()
    finally:
        held.release()


def test_temporary_files_of_an_engine_go_with_it(start):
    engine = start("ready")
    engine.wait_ready(20)
    folder = engine._tmp
    assert requests.get(f"{engine.url}/self", timeout=5).json()["tmp"] == str(folder)
    (folder / "vllm_dist_x").touch()
    engine.stop()
    assert not folder.exists()


def test_a_log_that_cannot_be_written(ledger, tmp_path, recorded):
    (tmp_path / "file").touch()
    launcher = ProcessLauncher(ledger=ledger, environ=os.environ)
    assert isinstance(launcher, Launcher)
    spec = EngineSpec(name="x", engine_key="x", role="baseline", model="none/such")
    with pytest.raises(SettingsError, match="engine x can't be run"):
        launcher.start(spec, log_path=tmp_path / "file" / "x.log", record=recorded)
