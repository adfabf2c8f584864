"""Stores and their servers: order, readiness, a pool that one server alone sees, death, break and mend, and what is
left afterwards."""

import itertools
import os
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import uuid
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from e2e.base.connector import ConnectorConfig, ServiceSpec
from e2e.base.errors import EngineCrashed, EngineRefused, EngineTimeout
from e2e.connectors.maru import rpc
from e2e.connectors.maru.servers import OnDaxFolder, probe_maru
from e2e.stack.ledger import Ledger
from e2e.stack.owned import ENGINE_MARK, MARK
from e2e.stack.store import Store
from e2e.waits import Outcome, wait

pytest.importorskip("zmq")
FAKE = str(Path(__file__).with_name("fake_server.py"))


@pytest.fixture
def ledger(tmp_path):
    with Ledger(run_id=f"t{uuid.uuid4().hex[:8]}", state_dir=tmp_path / "state") as made:
        yield made


@pytest.fixture
def run(ledger, tmp_path):
    """``run(*specs)`` -> a store with these servers; ``run.events`` is what was recorded."""
    events, numbers = [], itertools.count(1)

    @contextmanager
    def enter(*specs):
        with Store(
            f"e.{next(numbers)}", parent=tmp_path / "pools", ledger=ledger, environ=dict(os.environ),
            log_dir=tmp_path / "logs", record=lambda kind, **data: events.append((kind, data)),
        ) as store:  # fmt: skip
            store.serve(specs)
            yield store

    (tmp_path / "pools").mkdir()
    enter.events = events
    return enter


def server(*mood, name="maru-server", **more):
    argv = (sys.executable, FAKE, f"{{{name}.port}}", *mood)
    defaults = {"ready": "RPC Server started on", "probe": probe_maru, "need": 1 << 20, "limit_s": 20.0}
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
    with run(first, server()) as store:
        assert list(store.addresses) == ["maru-resource-manager", "maru-server"]
        store.check()
        assert len(ours(ledger)) == 2
        assert list(store.folder.iterdir()) == []
    assert ours(ledger) == []
    assert not store.folder.exists()


def test_several_engines_are_given_one_store(run, ledger):
    config = ConnectorConfig("Some", extra={"at": "tcp://{maru-server.address}"}, services=(server(),))
    with run() as store:
        first, second = store.give(config), store.give(config)
        assert first.extra == second.extra == {"at": f"tcp://{store.addresses['maru-server']}"}
        assert len(ours(ledger)) == 1


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
    assert run.events == []


def test_port_alone_is_not_enough(run):
    with pytest.raises(EngineRefused, match="can't lend 1 MiB"):
        run(server("refuse")).__enter__()


def test_mute_server_is_late(run, monkeypatch):
    monkeypatch.setattr(rpc, "FIRST_S", 0.3)
    with pytest.raises(EngineTimeout, match=r"did not work within 0\.5 s"):
        run(server("mute", limit_s=0.5)).__enter__()


def test_one_that_ends_at_once_says_its_last_word(run):
    dies = says("ConnectionError: Resource manager is not running", then="raise SystemExit(1)", ready="never")
    with pytest.raises(EngineRefused, match="exit code 1: ConnectionError: Resource manager is not running"):
        run(dies).__enter__()


def test_given_server_that_is_absent_is_named(run, monkeypatch):
    monkeypatch.setattr(rpc, "FIRST_S", 0.2)
    absent = ServiceSpec(name="maru-server", address="127.0.0.1:9", probe=probe_maru, limit_s=0.2, cure="start it")
    with pytest.raises(EngineTimeout, match=r"maru-server at 127.0.0.1:9 does not answer; start it"):
        run(absent).__enter__()


def test_death_under_running_engines_ends_them_at_once_and_is_named(run, ledger):
    one, other = threading.Event(), threading.Event()
    with run(server()) as store, store.watched(one.set), store.watched(other.set):
        os.kill(store.services[0].child.handle.pid, signal.SIGKILL)
        assert one.wait(10)
        assert other.wait(10)
        with pytest.raises(EngineCrashed, match=r"maru-server ended with SIGKILL .* under a running engine"):
            store.check()


def listens(store):
    host, _, port = store.addresses["maru-server"].rpartition(":")
    with socket.socket() as probe:
        return probe.connect_ex((host, int(port))) == 0


def test_a_server_is_broken_and_mended_under_its_engines(run, ledger):
    ended = threading.Event()
    with run(server()) as store, store.watched(ended.set):
        at = store.addresses["maru-server"]
        store.kill("maru-server")
        assert ours(ledger) == []
        assert not listens(store)
        store.check()
        store.restart("maru-server")
        assert (store.addresses["maru-server"], len(ours(ledger)), listens(store)) == (at, 1, True)
        store.suspend("maru-server")
        (pid,) = ours(ledger)
        assert wait(lambda: psutil.Process(pid).status() == psutil.STATUS_STOPPED, limit_s=5) is Outcome.READY
        store.check()
        store.resume("maru-server")
        store.check()
        assert not ended.is_set(), "who breaks it knows"
        os.kill(pid, signal.SIGKILL)
        assert ended.wait(10), "mended, it is watched again"
    assert ours(ledger) == []


def test_a_suspended_server_ends_with_its_store(run, ledger):
    with run(server()) as store:
        store.suspend("maru-server")
        assert len(ours(ledger)) == 1
    assert ours(ledger) == []


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
        name="manager", argv=(sys.executable, "-c", looks, str(pool)), ready="listening", within=OnDaxFolder(str(pool))
    )
    with run(manager):
        assert (pool / "maru_1.dat").read_bytes() == b"region"
        assert str(pool) not in Path("/proc/mounts").read_text()
        assert not list(Path("/sys/class/block").glob(f"pmem{os.getpid()}"))
    assert ours(ledger) == []
