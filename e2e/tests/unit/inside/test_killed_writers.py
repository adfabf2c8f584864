"""One of two writers is killed (SIGKILL) at any point of what it does: nothing torn or stale is served, the index goes
on, and the room that the dead one held is given to others.

The points are lines of the pool, its memory and the index's client, counted while a writer runs and drawn by a seed.
Imports no torch: a guest of scripts/cxl-host runs this on a DAX device.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from e2e.inside.evidence import Evidence
from e2e.inside.index import protocol as p
from e2e.inside.index.client import Client
from e2e.inside.memory import Mapped
from e2e.inside.pool import Pool
from e2e.inside.region import region
from e2e.tests.unit.inside.pools import content, filled

SIZE = 4 << 20
ROOT = Path(__file__).resolve().parents[4]
INSIDE = str(ROOT / "e2e" / "inside")
GROUPS, PIECES = 6, 16
fork = multiprocessing.get_context("fork")


class Slow(Mapped):
    """Writes piece by piece, so that a writer may die in the middle."""

    def write(self, starts: Sequence[int], buffers: Sequence[memoryview]) -> None:
        for start, buffer in zip(starts, buffers, strict=True):
            piece = -(-buffer.nbytes // PIECES)
            for at in range(0, buffer.nbytes, piece):
                super().write([start + at], [buffer[at : at + piece]])


class Writer:
    """Stores object after object under a few groups, each time another one; ``group/writer/number`` is its name."""

    def __init__(self, address: str, path: str, folder: str, who: str) -> None:
        index = Client(address, name=who, limit_s=60.0, rest_s=0.0)
        self.pool = Pool(Slow(region(path, SIZE)), SIZE, index=index, evidence=Evidence(folder, who))
        self.who = who

    def put(self, number: int) -> None:
        group = f"g{number % GROUPS}"
        name = f"{group}/{self.who}/{number}"
        assert self.pool.put(group, name, [(name, content(name))]) == ""

    def check(self) -> int:
        """How many of the groups are served, each of them as it was meant."""
        served = 0
        for group in [f"g{number}" for number in range(GROUPS)]:
            (extents,) = self.pool.locate([group])
            for name, extent in extents.items():
                out = filled(0, extent.size)
                if self.pool.read(extent, out):
                    assert out == content(name), f"{name} is torn or stale"
                    served += 1
        return served


def lines(limit: int) -> Iterator[int]:
    """Counts lines that this process runs of what is in the engine; at ``limit`` it kills itself."""
    count = [0]

    def line(frame: object, event: str, arg: object) -> object:
        count[0] += event == "line"
        if count[0] == limit:
            os.kill(os.getpid(), signal.SIGKILL)
        return line

    def call(frame: object, event: str, arg: object) -> object:
        code = frame.f_code.co_filename
        return line if code.startswith(INSIDE) or frame.f_code is Slow.write.__code__ else None

    sys.settrace(call)
    try:
        yield from iter(lambda: count[0], None)
    finally:
        sys.settrace(None)


def write(address: str, path: str, folder: str, who: str, limit: int, told: object) -> None:
    """One writer's life: connect, and store three objects."""
    counted = lines(limit)
    next(counted)
    writer = Writer(address, path, folder, who)
    for number in range(3):
        writer.put(number)
    told.put(next(counted))
    counted.close()


def go_on(address: str, path: str, folder: str, ended: object, told: object) -> None:
    """The other writer's life: stores and checks until it is over."""
    writer, number, served = Writer(address, path, folder, "survivor"), 0, 0
    while not ended.is_set():
        writer.put(number)
        served += writer.check()
        number += 1
    told.put((number, served))


@pytest.fixture
def address():
    words = ["-m", "e2e.inside.index.server", "--size", str(SIZE)]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))}
    process = subprocess.Popen([sys.executable, *words], stdout=subprocess.PIPE, text=True, env=env)
    yield process.stdout.readline().split()[-1]
    process.kill()
    process.wait(30)
    process.stdout.close()


@pytest.fixture
def path(tmp_path):
    """The DAX device that CXL_DEVICE names, or shared memory."""
    if device := os.environ.get("CXL_DEVICE"):
        yield device
        return
    file = Path("/dev/shm") / f"killed-writers-{os.getpid()}"
    yield str(file)
    file.unlink(missing_ok=True)


def life(target: object, *args: object, limit_s: float = 120) -> int:
    process = fork.Process(target=target, args=args)
    process.start()
    process.join(limit_s)
    assert process.exitcode is not None, "it hangs"
    return process.exitcode


@pytest.mark.parametrize("kills", [8, pytest.param(200, marks=pytest.mark.long)])
def test_nothing_torn_or_stale_is_served_and_no_room_is_lost(address, path, tmp_path, kills):
    folder, told, ended, rng = str(tmp_path), fork.SimpleQueue(), fork.Event(), random.Random(15)
    assert life(write, address, path, folder, "whole", 0, told) == 0
    most = told.get() * 9 // 10  # an answer that comes in two parts takes some lines more
    assert most > 300
    other = fork.Process(target=go_on, args=(address, path, folder, ended, told))
    other.start()
    reader = Writer(address, path, folder, "reader")
    served = 0
    try:
        for number in range(kills):
            code = life(write, address, path, folder, f"victim-{number}", rng.randrange(1, most), told)
            assert code == -signal.SIGKILL, "a point beyond its end"
            served += reader.check()
    finally:
        ended.set()
        other.join(120)
    assert other.exitcode == 0
    assert min(served, *told.get()) >= kills
    assert reader.check() == GROUPS, "what was published is whole"
    _room_is_whole(reader.pool.ask)


def _room_is_whole(index: Callable[[p.AnyRequest], object]) -> None:
    for _ in range(600):  # the index may have to notice yet that the last ones have gone
        if (state := index(p.Status())).clients == 1:
            break
        fork.Event().wait(0.1)
    assert (state.clients, state.reserved) == (1, 0), "the dead hold nothing"
    held = sum(extent.size for _, extents in index(p.List()) for extent in extents)
    assert held <= state.used <= held + 64 * GROUPS
    index(p.Clear())
    assert index(p.Status()).used == 0
    assert index(p.Reserve([SIZE])).rooms is not None
