"""Pools for tests: a real region and a real table, without the process and the wire between them. Imports no torch."""

from __future__ import annotations

import random
import time
from pathlib import Path

from e2e.inside.evidence import Evidence
from e2e.inside.index.table import Table
from e2e.inside.memory import Mapped
from e2e.inside.pool import Index, Pool
from e2e.inside.region import region


def filled(value: int, size: int) -> memoryview:
    """What a pool takes and fills: ``size`` bytes, all the same."""
    return memoryview(bytearray([value]) * size)


def content(name: str) -> memoryview:
    """What an object of this name must be, whoever stored it."""
    seed = random.Random(name)
    return filled(seed.randrange(256), seed.randrange(20_000, 60_000))


def index_of(size: int, owner: int = 1) -> Index:
    table = Table(size, epoch="test", now=time.monotonic)
    return lambda request: table.answer(owner, request)


def pool_in(folder: Path, size: int, *, index: Index | None = None, engine: str = "engine", **more) -> Pool:
    evidence = Evidence(str(folder), engine)
    memory = Mapped(region(f"{folder}/region", size))
    return Pool(memory, size, index=index or index_of(size), evidence=evidence, **more)
