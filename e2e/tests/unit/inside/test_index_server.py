"""The index as a process: killed, stopped, restarted, talked nonsense to; its clients killed in mid-store."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from e2e.inside.index import client as asking
from e2e.inside.index import protocol as p
from e2e.inside.index.client import Client, IndexGone, IndexRefused, own_index
from e2e.tests.unit.inside.pools import filled, pool_in
from e2e.waits import Outcome, wait

SIZE = 1 << 20
ROOT = Path(__file__).resolve().parents[4]
ENV = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))}


class Server:
    def __init__(self) -> None:
        self.port = 0
        self.start()

    def start(self) -> None:
        words = ["-m", "e2e.inside.index.server", "--size", str(SIZE), "--port", str(self.port)]
        self.process = subprocess.Popen([sys.executable, *words], stdout=subprocess.PIPE, text=True, env=ENV)
        said = self.process.stdout.readline()
        assert said.startswith("ready: the index of 1 MiB listens at 127.0.0.1:"), said
        self.port = int(said.rpartition(":")[2])
        self.address = f"127.0.0.1:{self.port}"

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(30)
        self.process.stdout.close()


@pytest.fixture
def server():
    made = Server()
    yield made
    made.process.send_signal(signal.SIGCONT)
    made.kill()


@pytest.fixture
def client(server):
    made = Client(server.address, name="test", limit_s=5.0, rest_s=0.0)
    yield made
    made.close()


#: Reserves and writes, says so, and never publishes: ADDRESS REGION
WRITER = """
import mmap, sys, time
from e2e.inside.index import protocol as p
from e2e.inside.index.client import Client
client = Client(sys.argv[1])
(room,) = client(p.Reserve([500_000])).rooms
with open(sys.argv[2], "r+b") as file:
    mmap.mmap(file.fileno(), 0)[room.start : room.start + room.size] = b"x" * room.size
print("written", flush=True)
time.sleep(600)
"""


def test_a_writer_killed_between_reserve_and_publish_leaves_nothing(server, client, tmp_path):
    region = tmp_path / "region"
    region.write_bytes(bytes(SIZE))
    words = [sys.executable, "-c", WRITER, server.address, str(region)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=ENV) as writer:
        assert writer.stdout.readline() == "written\n"
        assert client(p.Status()).reserved == 1
        assert client(p.List()) == []
        writer.kill()
    assert wait(lambda: client(p.Status()).reserved == 0, limit_s=30) is Outcome.READY
    state = client(p.Status())
    assert (state.used, state.groups, state.abandoned) == (0, 0, 1)
    assert client(p.Reserve([SIZE])).rooms is not None


def test_an_index_killed_and_started_again_is_empty_and_what_was_under_way_is_void(server, client, tmp_path):
    pool = pool_in(tmp_path, SIZE, index=client)
    assert pool.put("a", "t", [("a", filled(1, 1000))]) == ""
    before, rooms = client(p.Status()).epoch, client(p.Reserve([64])).rooms
    server.kill()
    assert pool.find(["a"]) == [None]
    assert pool.put("b", "t", [("b", filled(1, 10))]) == "lost"
    server.start()
    assert client(p.Status()).epoch != before
    assert client(p.Publish("late", "t", [p.Written(rooms[0].ticket, "late", "sum")])) is False
    assert pool.find(["a", "b", "late"]) == [None, None, None]
    assert pool.put("a", "t", [("a", filled(0, 1000))]) == ""
    assert pool.find(["a"]) == ["t"]
    assert pool.evidence.counters() == {"index_errors": 2, "index_errors//": 2}


def test_a_stopped_index_is_gone_within_the_limit_and_back_when_it_goes_on(server):
    client = Client(server.address, limit_s=0.3, rest_s=0.0)
    assert client(p.Find(["a"])) == [None]
    server.process.send_signal(signal.SIGSTOP)
    for _ in range(2):  # the connection that was open, then one that nobody greets
        with pytest.raises(IndexGone, match=r"the index at .* does not answer \(timed out\)"):
            client(p.Find(["a"]))
    server.process.send_signal(signal.SIGCONT)
    patient = Client(server.address, limit_s=30.0)
    assert patient(p.Find(["a"])) == [None]


def test_an_answer_that_came_in_time_counts_though_its_reader_was_held_up(client, monkeypatch):
    """Two ranks that spin on two cores beside others: a thread that asked was not run for seconds."""
    client.welcome()
    monkeypatch.setattr(asking, "GRACE_S", 30.0)
    monkeypatch.setattr(asking, "time", SimpleNamespace(monotonic=count(step=10).__next__))
    assert client(p.Locate(["nothing"])) == [[]]


def test_an_index_that_is_gone_is_not_asked_at_every_step(server):
    client = Client(server.address, rest_s=600.0)
    assert client(p.Find(["a"])) == [None]
    server.kill()
    with pytest.raises(IndexGone):
        client(p.Find(["a"]))
    server.start()
    with pytest.raises(IndexGone):
        client(p.Find(["a"]))


def test_a_client_that_talks_nonsense_is_cut_off_alone(server, client):
    client(p.Status())
    for nonsense in (
        b"\xff" * 64,
        p.LENGTH.pack(4) + b"what",
        p.LENGTH.pack(2) + b"\x81\xa4",
        b"GET / HTTP/1.1\r\n\r\n",
    ):
        with socket.create_connection(("127.0.0.1", server.port), timeout=30) as stranger:
            stranger.sendall(nonsense)
            stranger.shutdown(socket.SHUT_WR)
            assert stranger.recv(100) == b""
    assert client(p.Find(["a"])) == [None]
    with pytest.raises(IndexRefused, match="no object has less than no bytes"):
        client(p.Reserve([-1]))
    assert client(p.Find(["a"])) == [None], "a refusal is an answer"


def test_threads_and_forks_have_their_own_answers(server, client, tmp_path):
    wrong = []

    def asks(number):
        for i in range(50):
            rooms = client(p.Reserve([1])).rooms
            client(p.Publish(f"{number}-{i}", f"{number}-{i}", [p.Written(rooms[0].ticket, "o", "s")]))
            if client(p.Find([f"{number}-{i}"])) != [f"{number}-{i}"]:
                wrong.append((number, i))

    threads = [threading.Thread(target=asks, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert wrong == []
    assert client(p.Status()).groups == 200
    if (pid := os.fork()) == 0:
        os._exit(0 if client(p.Status()).clients == 2 else 1)
    assert os.waitpid(pid, 0)[1] == 0
    assert client(p.Status()).groups == 200


def test_an_engine_without_an_address_gets_an_index_of_its_own_that_ends_with_it(tmp_path):
    first, second = (Client(own_index(tmp_path, SIZE)) for _ in range(2))
    assert first.address == second.address
    assert first.welcome().size == SIZE
    second.welcome()
    (own,) = [one for one in psutil.Process().children() if "e2e.inside.index.server" in " ".join(one.cmdline())]
    first.close()
    assert wait(lambda: second(p.Status()).clients == 1, limit_s=30) is Outcome.READY
    second.close()
    own.wait(60)
    assert Client(own_index(tmp_path, SIZE)).welcome().size == SIZE, "a stale address is no obstacle"


def test_an_index_that_can_t_start_says_why(tmp_path):
    with pytest.raises(IndexGone, match=r"could not be started in .* \(.*invalid int value: 'big'\)"):
        own_index(tmp_path, "big")


def test_it_is_there_in_a_moment_since_it_imports_no_torch():
    words = ["-c", "import sys; import e2e.inside.index.server; print('torch' in sys.modules)"]
    assert subprocess.run([sys.executable, *words], env=ENV, capture_output=True, text=True, check=True).stdout == (
        "False\n"
    )


def test_engines_and_index_die_at_random_and_nobody_reads_wrong_bytes(server, tmp_path):
    """Three engines store and load under eviction; one is killed, one stopped for a while, the index killed twice."""
    script = str(Path(__file__).with_name("engine_on_pool.py"))
    engines = [
        subprocess.Popen(
            [sys.executable, script, server.address, str(tmp_path), str(seed)], env=ENV, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )
        for seed in range(3)
    ]  # fmt: skip
    client = Client(server.address, limit_s=30.0, rest_s=0.0)

    def at_work(groups: int) -> None:
        assert wait(lambda: client(p.Status()).groups >= groups, limit_s=60) is Outcome.READY

    try:
        assert [engine.stdout.readline() for engine in engines] == ["ready\n"] * 3
        at_work(50)
        engines[0].kill()
        engines[1].send_signal(signal.SIGSTOP)
        server.kill()
        server.start()
        client = Client(server.address, limit_s=30.0, rest_s=0.0)
        at_work(50)
        engines[1].send_signal(signal.SIGCONT)
        server.kill()
        server.start()
        client = Client(server.address, limit_s=30.0, rest_s=0.0)
        at_work(50)
        assert wait(lambda: client(p.Status()).evicted > 100, limit_s=60) is Outcome.READY
        for engine in engines[1:]:
            engine.communicate(timeout=60)
    finally:
        for engine in engines:
            engine.kill()
            engine.wait(30)
            engine.stdout.close()
            engine.stdin.close()
    for seed in (1, 2):
        seen = json.loads((tmp_path / f"seen-{seed}.json").read_text())
        assert seen["wrong"] == 0
        assert min(seen["served"], seen["missed"], seen["stored"]) > 0, seen
    assert wait(lambda: client(p.Status()).reserved == 0, limit_s=30) is Outcome.READY
