"""What a guest of scripts/cxl-host does with a pool: ``python3 -m e2e.tests.cxl.guest INDEX REGION DEED...``

``put:NAME`` stores a few groups, ``get:NAME`` waits for them and proves each object, ``all`` reads whatever the pool
holds, ``again`` stores it anew, elsewhere. Prints JSON, a line for each deed. Imports no torch.
"""

from __future__ import annotations

import hashlib
import json
import sys
import tempfile
import threading
import time

from e2e.inside.evidence import Evidence
from e2e.inside.index import protocol as p
from e2e.inside.index.client import Client
from e2e.inside.memory import Flushed, Mapped
from e2e.inside.pool import Pool
from e2e.inside.region import region
from e2e.tests.unit.inside.pools import content, filled

GROUPS = 8
#: How long the objects of another host are waited for. Seconds.
WITHIN_S = 240.0


def opened(address: str, path: str) -> Pool:
    index = Client(address, name="guest", limit_s=60.0, rest_s=0.0)
    size = index(p.Status()).size
    memory = (Flushed if path.startswith("/dev/dax") else Mapped)(region(path, size))
    return Pool(memory, size, index=index, evidence=Evidence(tempfile.mkdtemp(), "guest"))


def put(pool: Pool, name: str) -> dict[str, object]:
    for group in _groups(name):
        assert pool.put(group, "t", [(each, content(each)) for each in (f"{group}/0", f"{group}/1")]) == ""
    return {"put": GROUPS}


def get(pool: Pool, name: str) -> dict[str, object]:
    deadline = time.monotonic() + WITHIN_S
    while None in pool.find(_groups(name)):
        assert time.monotonic() < deadline, f"{name} never came"
        threading.Event().wait(0.1)
    found = {name: data for group in _groups(name) for name, data in objects(pool, group)}
    return {"got": len(found), "right": sum(data == content(name) for name, data in found.items())}


def everything(pool: Pool) -> dict[str, object]:
    digest = hashlib.sha256()
    held = sorted(group for group, _ in pool.ask(p.List()))
    for group in held:
        for name, data in objects(pool, group):
            digest.update(name.encode() + bytes(data))
    return {"groups": len(held), "sha256": digest.hexdigest()}


def again(pool: Pool) -> dict[str, object]:
    """In the order of their places but for the first, which comes last: objects of one size all lie elsewhere then."""
    before = _starts(pool)
    groups = sorted(pool.ask(p.List()), key=lambda one: one[1][0].start)
    held = [(group, pool.find([group])[0], objects(pool, group)) for group, _ in groups]
    pool.forget([group for group, _, _ in held])
    for group, tag, kept in [*held[1:], held[0]]:
        assert pool.put(group, tag, kept) == ""
    after = _starts(pool)
    assert after.keys() == before.keys()
    return {"again": len(after), "moved": sum(after[name] != before[name] for name in after)}


def _starts(pool: Pool) -> dict[str, int]:
    return {extent.name: extent.start for _, extents in pool.ask(p.List()) for extent in extents}


def objects(pool: Pool, group: str) -> list[tuple[str, memoryview]]:
    """Each proven by its checksum."""
    found = []
    for name, extent in pool.locate([group])[0].items():
        out = filled(0, extent.size)
        assert pool.read(extent, out), f"{name} can't be read"
        found.append((name, out))
    return found


def _groups(name: str) -> list[str]:
    return [f"{name}{number}" for number in range(GROUPS)]


def main(address: str, path: str, *deeds: str) -> None:
    pool = opened(address, path)
    for deed in deeds:
        what, *names = deed.split(":")
        told = {"put": put, "get": get, "all": everything, "again": again}[what](pool, *names)
        print(json.dumps(told), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
