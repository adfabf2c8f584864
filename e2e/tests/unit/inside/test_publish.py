"""Whoever loads from a memory whose hosts don't see each other's caches gets a whole object or a miss, and misses
nothing without a cause: of the list of steps, in every order; of the pool that walks it, on such a memory."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence

import pytest

from e2e.inside.evidence import Evidence
from e2e.inside.index.table import Table
from e2e.inside.memory import Flushed, Host, Mapped
from e2e.inside.pool import Pool
from e2e.inside.publish import ANNOUNCED_EARLY, LOAD, STORE, UNVERIFIED, Loading, Storing
from e2e.inside.region import PoolError, region
from e2e.tests.unit.inside.hosts import Broken, explore
from e2e.tests.unit.inside.pools import filled

#: Bytes; room for two objects.
LINE, SIZE = 64, 64 * 11


def without(steps: Sequence, step: object) -> tuple:
    return tuple(each for each in steps if each is not step)


MUTANTS = {
    "nothing is written back": (without(STORE, Storing.WRITE_BACK), LOAD, "a miss without a cause"),
    "nothing is fetched anew": (STORE, without(LOAD, Loading.FETCH), "a miss without a cause"),
    "nothing is verified": (STORE, without(LOAD, Loading.VERIFY), "a wrong answer"),
    "it is announced early": (ANNOUNCED_EARLY, LOAD, "a miss without a cause"),
    "early, and unverified": (ANNOUNCED_EARLY, UNVERIFIED, "a wrong answer"),
}


def test_the_steps_hold_in_every_order():
    assert explore() > 5000


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_mutant_of_the_steps_is_broken(mutant):
    store, load, why = MUTANTS[mutant]
    with pytest.raises(Broken, match=why):
        explore(store, load)


class Cache(Host):
    """One host's memory over what all of them share. Before each line that it moves, ``meanwhile`` happens."""

    def __init__(self, shared: bytearray, rng: random.Random, meanwhile: Callable[[], None]) -> None:
        self.shared, self.rng, self.meanwhile = shared, rng, meanwhile
        self.kept: dict[int, tuple[bytes, bool]] = {}

    def _lines(self, start: int, size: int) -> list[int]:
        lines = list(range(start // LINE, -(-(start + size) // LINE)))
        self.rng.shuffle(lines)
        return lines

    def _clean(self, line: int) -> None:
        held, written = self.kept.pop(line, (b"", False))
        if written:
            self.shared[line * LINE : (line + 1) * LINE] = held

    def _get(self, line: int) -> bytes:
        fresh = bytes(self.shared[line * LINE : (line + 1) * LINE])
        return self.kept.setdefault(line, (fresh, False))[0]

    def evict(self) -> None:
        """Some line goes, unasked."""
        if self.kept:
            self._clean(self.rng.choice(list(self.kept)))

    def write(self, starts: Sequence[int], buffers: Sequence[memoryview]) -> None:
        for start, buffer in zip(starts, buffers, strict=True):
            self._write(start, bytes(buffer))

    def _write(self, start: int, content: bytes) -> None:
        for line in self._lines(start, len(content)):
            self.meanwhile()
            whole = bytearray(self._get(line))
            begin, end = max(start, line * LINE), min(start + len(content), (line + 1) * LINE)
            whole[begin - line * LINE : end - line * LINE] = content[begin - start : end - start]
            self.kept[line] = bytes(whole), True

    def read(self, starts: Sequence[int], buffers: Sequence[memoryview]) -> None:
        for start, buffer in zip(starts, buffers, strict=True):
            self._read(start, buffer)

    def _read(self, start: int, out: memoryview) -> None:
        found = {}
        for line in self._lines(start, out.nbytes):
            self.meanwhile()
            found[line] = self._get(line)
        content = b"".join(found[line] for line in sorted(found))[start % LINE :][: out.nbytes]
        out[:] = content

    def write_back(self, start: int, size: int) -> None:
        for line in self._lines(start, size):
            self.meanwhile()
            self._clean(line)

    fetch = write_back


class Hosts:
    """Two pools on one index and one memory. While one of them moves a line, the other may do something whole."""

    def __init__(self, seed: int, folder: str, store: Sequence[Storing], load: Sequence[Loading]) -> None:
        self.rng, self.store, self.load = random.Random(seed), store, load
        self.deep, self.stores = 0, 0
        shared, table = bytearray(SIZE), Table(SIZE, epoch="test", now=time.monotonic)
        self.caches = [Cache(shared, self.rng, self.meanwhile) for _ in range(2)]
        self.pools = [
            Pool(cache, SIZE, index=lambda request, owner=owner: table.answer(owner, request), evict=True,
                 evidence=Evidence(folder, f"{seed}-{owner}"))
            for owner, cache in enumerate(self.caches, start=1)
        ]  # fmt: skip
        self.content: dict[str, memoryview] = {}

    def meanwhile(self) -> None:
        if self.rng.random() < 0.3:
            self.rng.choice(self.caches).evict()
        if self.deep < 2 and self.rng.random() < 0.1:
            self.something()

    def something(self) -> None:
        self.deep += 1
        (self.put if self.rng.random() < 0.4 else self.get)(self.rng.choice(self.pools))
        self.deep -= 1

    def put(self, pool: Pool) -> None:
        self.stores += 1
        content = memoryview(bytearray(self.rng.randbytes(300)))
        name = f"{self.rng.randrange(3)}-{self.stores}"
        self.content[name] = content
        pool.put(name.partition("-")[0], name, [(name, content)], steps=self.store)

    def get(self, pool: Pool) -> None:
        group = str(self.rng.randrange(3))
        (extents,) = pool.locate([group])
        for name, extent in extents.items():
            before, out = self.stores, filled(0, extent.size)
            served = pool.read(extent, out, steps=self.load)
            if served and out != self.content[name]:
                raise Broken(f"a wrong answer: {name}")
            if not served and self.stores == before:
                raise Broken(f"a miss without a cause: {name}")


def played(folder: object, store: Sequence[Storing] = STORE, load: Sequence[Loading] = LOAD) -> None:
    for seed in range(8):
        hosts = Hosts(seed, str(folder), store, load)
        for _ in range(100):
            hosts.something()
        assert hosts.stores > 20


def test_the_pool_serves_whole_objects_or_none(tmp_path):
    played(tmp_path)


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_mutant_of_the_pool_is_broken(tmp_path, mutant):
    store, load, why = MUTANTS[mutant]
    with pytest.raises(Broken, match=why):
        played(tmp_path, store, load)


def test_cache_lines_are_moved_by_libpmem_or_one_sentence_says_what_lacks(tmp_path):
    mapped = region(str(tmp_path / "pool"), SIZE)
    try:
        memory = Flushed(mapped)
    except PoolError as error:
        assert str(error) == "embedded_pool_flush needs libpmem; install libpmem1, or leave it out."  # noqa: PT017
        return
    memory.write([100], [filled(7, 200)])
    memory.write_back(100, 200)
    memory.fetch(100, 200)
    out = filled(0, 200)
    Mapped(mapped).read([100], [out])
    assert out == filled(7, 200)
