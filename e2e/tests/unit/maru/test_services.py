"""Servers beside an engine: order, readiness, a pool that one server alone sees, death, and what is left afterwards."""

import os
import subprocess
import sys
import textwrap
import threading
import uuid
from pathlib import Path

import psutil
import pytest

from e2e.base.connector import ServiceSpec
from e2e.base.errors import EngineCrashed, EngineRefused, EngineTimeout
from e2e.stack.ledger import Ledger
from e2e.stack.owned import ENGINE_MARK, MARK
from e2e.stack.services import beside

pytest.importorskip("zmq")
FAKE = str(Path(__file__).with_name("fake_server.py"))


@pytest.fixture
def ledger(tmp_path):
    with Ledger(run_id=f"t{uuid.uuid4().hex[:8]}", state_dir=tmp_path / "state") as made:
        yield made


@pytest.fixture
def run(ledger, tmp_path):
    """``run(*specs)`` -> context manager of running services; ``run.events`` is what was recorded."""
    events = []

    def enter(*specs):
        return beside(
            specs, engine="e.1", engine_key="e", attempt=1, ledger=ledger, environ=dict(os.environ),
            log_dir=tmp_path / "logs", record=lambda kind, **data: events.append((kind, data)),
        )  # fmt: skip

    enter.events = events
    return enter


def server(*mood, name="maru-server", **more):
    argv = (sys.executable, FAKE, f"{{{name}.port}}", *mood)
    defaults = {"ready": "RPC Server started on", "probe": "maru", "need": 1 << 20, "limit_s": 20.0}
    return ServiceSpec(name=name, argv=argv, **{**defaults, **more})


def says(text, *, name="maru-resource-manager", then="import time; time.sleep(60)", **more):
    return ServiceSpec(name=name, argv=(sys.executable, "-c", f"print({text!r}, flush=True); {then}"), **more)


def ours(ledger):
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(MARK) == ledger.run_id:
                found.append(process.pid)
        except psutil.Error:
            continue
    return found


def test_starts_in_order_fills_places_and_leaves_nothing(run, ledger):
    first = says("ready - listening on 127.0.0.1", ready="listening on")
    with run(first, server()) as services:
        assert list(services.addresses) == ["maru-resource-manager", "maru-server"]
        services.check()
        assert len(ours(ledger)) == 2
    assert ours(ledger) == []


def test_the_end_of_the_engine_does_not_wait_for_its_servers(run, ledger):
    """They would not hear the engine's SIGINT, and every stop would take its whole limit."""
    with run(server()):
        (pid,) = ours(ledger)
        assert psutil.Process(pid).environ()[ENGINE_MARK] == "e.1.maru-server"


def test_listening_without_a_pool_is_refused_with_cause_and_cure(run, ledger):
    empty = says(
        "no CXL/DAX devices found\nready - listening", ready="listening", useless="no CXL/DAX", cure="give it one"
    )
    with pytest.raises(
        EngineRefused, match=r"maru-resource-manager is of no use: no CXL/DAX devices found; give it one"
    ):
        run(empty, server()).__enter__()
    assert ours(ledger) == []
    assert [kind for kind, _ in run.events] == ["engine.start", "engine.failed"]
    assert run.events[1][1]["stage"] == "start"


def test_port_alone_is_not_enough(run):
    with pytest.raises(EngineRefused, match="can't lend 1 MiB"):
        run(server("refuse")).__enter__()


def test_mute_server_is_late(run):
    with pytest.raises(EngineTimeout, match="did not work within 2 s"):
        run(server("mute", limit_s=2.0)).__enter__()


def test_one_that_ends_at_once_says_its_last_word(run):
    dies = says("ConnectionError: Resource manager is not running", then="raise SystemExit(1)", ready="never")
    with pytest.raises(EngineRefused, match="exit code 1: ConnectionError: Resource manager is not running"):
        run(dies).__enter__()


def test_given_server_that_is_absent_is_named(run):
    absent = ServiceSpec(name="maru-server", address="127.0.0.1:9", probe="maru", limit_s=1.0, cure="start it")
    with pytest.raises(EngineTimeout, match=r"maru-server at 127.0.0.1:9 does not answer; start it"):
        run(absent).__enter__()


def test_death_under_a_running_engine_ends_the_engine_at_once_and_is_named(run):
    ended = threading.Event()
    with run(server()) as services, services.watched(ended.set):
        services.running[0].popen.kill()
        assert ended.wait(10)
        with pytest.raises(EngineCrashed, match="maru-server ended with exit code -9 under a running engine"):
            services.check()
    assert run.events[-1][0] == "engine.failed"
    assert run.events[-1][1]["stage"] == "run"


def namespaces_allowed():
    words = ["unshare", "--user", "--map-root-user", "--mount", "true"] if os.geteuid() else ["unshare", "-m", "true"]
    try:
        return subprocess.run(words, capture_output=True, check=False).returncode == 0
    except OSError:
        return False


@pytest.mark.skipif(not namespaces_allowed(), reason="mount namespaces need root or a kernel that lets users make them")
@pytest.mark.skipif(not Path("/dev/shm").is_dir(), reason="the pool lies in shared memory")
def test_pool_is_a_dax_file_system_to_one_server_and_a_plain_folder_to_all_others(run, ledger):
    """As the resource manager looks for it: a pmem block device, and a mount from it whose options say dax."""
    looks = textwrap.dedent("""
        import os, sys, time
        (device,) = [name for name in os.listdir("/sys/class/block") if name.startswith("pmem")]
        (mount,) = [line.split() for line in open("/proc/mounts") if line.startswith(f"/dev/{device} ")]
        assert "dax" in mount[3] and mount[1] == sys.argv[1], mount
        assert not os.path.isdir("/sys/bus/dax/devices") or not os.listdir("/sys/bus/dax/devices")
        with open(f"{mount[1]}/maru_1.dat", "wb") as region:
            region.write(b"region")
        print("ready - listening", flush=True)
        time.sleep(60)
    """)
    pool = ledger.folder(Path("/dev/shm"), "engine") / "pool.dax"
    manager = ServiceSpec(
        name="manager", argv=(sys.executable, "-c", looks, str(pool)), ready="listening", dax_folder=str(pool)
    )
    with run(manager):
        assert (pool / "maru_1.dat").read_bytes() == b"region"
        assert str(pool) not in Path("/proc/mounts").read_text()
        assert not list(Path("/sys/class/block").glob(f"pmem{os.getpid()}"))
    assert ours(ledger) == []
