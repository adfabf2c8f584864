"""The protocol, against a server that speaks it over a real socket, and against bytes that are none of it."""

import socket
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

from e2e.base.connector import ServiceSpec
from e2e.base.errors import EngineRefused, EngineTimeout, SettingsError
from e2e.connectors.maru import rpc, witness
from e2e.connectors.maru.adapter import Maru
from e2e.connectors.maru.build import Build
from e2e.connectors.maru.rpc import HANDSHAKE, MaruServer, decode, encode
from e2e.connectors.maru.servers import probe_maru
from e2e.connectors.maru.witness import MaruWitness

pytest.importorskip("zmq")
pytest.importorskip("msgspec")
FAKE = Path(__file__).with_name("fake_server.py")
SMOLLM2 = {"num_layers": 30, "heads": 3, "head_size": 64, "dtype": "bfloat16"}


@contextmanager
def serving(mood=""):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, str(FAKE), str(port), mood]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout.readline().startswith("RPC Server started")
            yield f"127.0.0.1:{port}"
        finally:
            process.kill()


def test_a_given_server_without_room_for_every_start_is_refused_early(monkeypatch):
    july = Build(version="1", commit="c", source="s", keys=frozenset(), kernels=False)
    with serving() as address:
        assert MaruServer(address).free_bytes() == 3 << 30
        maru = Maru(build=july, server=address)
        assert maru.crowded(starts=2) is None
        said = maru.crowded(starts=3)
        assert "has 3072 MiB free, and 3 engine starts need 3084 MiB" in said
        assert "restart it" in said
        newer = Build(version="1", commit="c", source="s", keys=frozenset({"maru_use_layerwise"}), kernels=False)
        assert Maru(build=newer, server=address).crowded(starts=30) is None
        assert Maru(build=july).crowded(starts=30) is None
    monkeypatch.setattr(rpc, "FIRST_S", 0.2)
    assert maru.crowded(starts=30) is None, "one that is gone is told when it is needed"


def test_a_given_server_without_a_pool_is_refused_early():
    """Its resource manager was started where there is no CXL, and listens all the same."""
    with serving("refuse") as address:
        for keys in ({"maru_use_layerwise"}, set()):
            build = Build(version="1", commit="c", source="s", keys=frozenset(keys), kernels=False)
            said = Maru(build=build, server=address).crowded(starts=1)
            assert f"maru-server at {address} can't lend 1024 MiB (Allocation failed: -12)" in said
            assert "its resource manager has no pool" in said


def test_header_is_sixteen_bytes_in_network_order():
    message = encode(HANDSHAKE, {}, sequence=258)
    assert message[:16] == bytes([0xCF, 0, 1, 0xFE, 0, 0, 0, 0, 0, 0, 1, 2, 0, 0, 0, 1])
    assert decode(message, source="x") == {}


@pytest.mark.parametrize("message", [b"", b"HTTP/1.1 400", encode(HANDSHAKE, {"a": 1}, sequence=1)[:-1]])
def test_foreign_bytes_are_no_answer(message):
    with pytest.raises(SettingsError, match="no maru-server"):
        decode(message, source="x")


def test_asks_stats_of_one_instance_and_probes():
    with serving() as address:
        probe_maru(ServiceSpec(name="maru-server", need=1 << 20), address)
        server = MaruServer(address)
        assert server.operations("/pool")["retrieve"]["hit_count"] == 60
        assert server.operations("nobody") == {}


def test_witness_reads_counters_and_log_together(tmp_path, monkeypatch):
    monkeypatch.setattr(witness, "_STILL_S", 0.2)
    log = tmp_path / "engine.log"
    log.write_text(
        "INFO Maru KV hit: req=cmpl-r-0-1a2b3c4d, 2 chunks (512 tokens), new=512 beyond computed=0\n"
        "INFO Maru: loaded 30 layers x 2 chunks (512 tokens)\n"
    )
    with serving() as address:
        ask = MaruWitness(
            address=address, instance="/pool", log_path=log, effective=SMOLLM2, storage_format="chunkwise"
        )
        (seen,) = ask("rig_evidence", 0)
        assert seen["counters"]["hit_tokens"] == 512
        assert seen["counters"]["load_failures"] == 0
        assert [load["storage_format"] for load in seen["loads"]] == ["layerwise"]
        assert ask("rig_evidence", 1)[0]["loads"] == []


def test_server_without_a_pool_is_refused_by_its_probe():
    with serving("refuse") as address, pytest.raises(EngineRefused, match="no pool"):
        probe_maru(ServiceSpec(name="maru-server", need=1 << 20), address)


def test_mute_server_is_late_and_says_where():
    with serving("mute") as address, pytest.raises(EngineTimeout, match=address):
        MaruServer(address, limit_s=0.3).handshake()


def test_something_else_on_the_port_is_no_maru_server():
    with serving("garbled") as address, pytest.raises(SettingsError, match="no maru-server"):
        MaruServer(address, limit_s=3).handshake()


def test_witness_of_a_dead_server_counts_nothing(tmp_path):
    with serving("mute") as address:
        ask = MaruWitness(address=address, instance="i", log_path=None, effective=SMOLLM2)
        ask._server.limit_s = 0.3
        (seen,) = ask("rig_evidence", 0)
    assert "hit_tokens" not in seen["counters"]
    assert seen["loads"] == []
