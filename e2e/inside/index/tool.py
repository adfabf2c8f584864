"""What a pool holds, listed and damaged: ``python -m e2e.inside.index.tool HOST:PORT REGION list``, or one of the
damages and the groups that it strikes, or one of ``OTHERS``. Prints JSON; no damage tells the index more than its owner
would."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

from e2e.inside.evidence import under_way
from e2e.inside.index import protocol as p
from e2e.inside.index.client import Client, IndexGone, IndexRefused
from e2e.inside.region import PoolError
from e2e.inside.region import region as mapped

OTHERS = ("fill", "drain", "under-way")
#: Groups of this name take room from engines.
BALLAST = "ballast-"
#: How long ``under-way`` waits for the work that is named. Seconds.
WITHIN_S = 20.0


class Pool:
    """An index with its region, as raw bytes."""

    def __init__(self, address: str, region: Path) -> None:
        self.index = Client(address, name="tool", limit_s=10.0)
        self.bytes = mapped(str(region), self.index(p.Status()).size)

    def extents(self, group: str) -> list[p.Extent]:
        """Raises IndexRefused for a group that is not there."""
        (found,) = self.index(p.Locate([group]))
        if not found:
            raise IndexRefused(f"no group {group!r} is there")
        return found


def delete(pool: Pool, group: str) -> None:
    """The index forgets it."""
    pool.extents(group)
    pool.index(p.Forget([group]))


def lose(pool: Pool, group: str) -> None:
    """The index finds it, and none of its objects: they went between lookup and load."""
    extents = pool.extents(group)
    (tag,) = pool.index(p.Find([group]))
    pool.index(p.Forget([group]))
    rooms = pool.index(p.Reserve([extents[0].size])).rooms
    if rooms is None:
        raise IndexRefused("there is no room for what is to stand for it")
    pool.index(p.Publish(group, tag, [p.Written(rooms[0].ticket, f"{extents[0].name}, lost", extents[0].checksum)]))


def flip(pool: Pool, group: str) -> None:
    """One bit in the middle of its middle object."""
    extents = pool.extents(group)
    one = extents[len(extents) // 2]
    pool.bytes[one.start + one.size // 2] ^= 1


def tear(pool: Pool, group: str) -> None:
    """The second half of each object never arrived."""
    for one in pool.extents(group):
        pool.bytes[one.start + one.size // 2 : one.start + one.size] = bytes(one.size - one.size // 2)


def truncate(pool: Pool, group: str) -> None:
    """Each object has only its first half, and the checksum of the whole."""
    extents = pool.extents(group)
    (tag,) = pool.index(p.Find([group]))
    rooms = pool.index(p.Reserve([one.size // 2 for one in extents], evict=True)).rooms
    if rooms is None:
        raise IndexRefused("there is no room for what is to be cut")
    for one, room in zip(extents, rooms, strict=True):
        pool.bytes[room.start : room.start + room.size] = pool.bytes[one.start : one.start + room.size]
    written = [p.Written(room.ticket, one.name, one.checksum) for one, room in zip(extents, rooms, strict=True)]
    pool.index(p.Publish(group, tag, written))


def replace(pool: Pool, group: str) -> None:
    """The bytes of another group of the same shape, the oldest: whole, intact, and somebody else's."""
    mine = pool.extents(group)
    others = [extents for name, extents in pool.index(p.List()) if name != group]
    alike = [extents for extents in others if [one.size for one in extents] == [one.size for one in mine]]
    if not alike:
        raise IndexRefused(f"no other group has the shape of {group!r}")
    for one, other in zip(mine, alike[0], strict=True):
        pool.bytes[one.start : one.start + one.size] = pool.bytes[other.start : other.start + other.size]


DAMAGES: dict[str, Callable[[Pool, str], None]] = {
    made.__name__: made for made in (delete, lose, flip, tear, truncate, replace)
}  # fmt: skip


def fill(pool: Pool) -> None:
    """No room is left for whoever may evict nothing. Only the index is told: not a byte is written."""
    size = pool.index(p.Status()).size
    while size:
        rooms = pool.index(p.Reserve([size])).rooms
        if rooms is None:
            size //= 2
            continue
        written = [p.Written(rooms[0].ticket, "ballast", "")]
        pool.index(p.Publish(f"{BALLAST}{rooms[0].ticket}", "", written))


def drain(pool: Pool) -> None:
    pool.index(p.Forget([name for name, _ in pool.index(p.List()) if name.startswith(BALLAST)]))


def held(pool: Pool) -> list[str]:
    """Groups that engines have stored."""
    return [name for name, _ in pool.index(p.List()) if not name.startswith(BALLAST)]


def awaited(folder: Path, engine: str, work: str | None = None) -> dict[str, int]:
    """What is under way there: at once, or when there is any ``work``, or when the time is over."""
    deadline = time.monotonic() + WITHIN_S
    told = under_way(folder, engine)
    while work and not told.get(work) and time.monotonic() < deadline:
        time.sleep(0.002)  # noqa: TID251  (an engine has no rig and no tenacity)
        told = under_way(folder, engine)
    return told


def done(what: str, address: str, region: Path, names: list[str]) -> object:
    if what == "under-way":  # an engine keeps its evidence itself, whatever became of the index
        return awaited(region.parent, *names)
    pool = Pool(address, region)
    for group in names:
        DAMAGES[what](pool, group)
    if what in OTHERS:
        {"fill": fill, "drain": drain}[what](pool)
    return held(pool)


def main(argv: list[str]) -> None:
    words = argparse.ArgumentParser(prog="index tool")
    words.add_argument("address")
    words.add_argument("region", type=Path)
    words.add_argument("what", choices=["list", *DAMAGES, *OTHERS])
    words.add_argument("names", nargs="*", help="groups, or the id of an engine and a kind of work")
    given = words.parse_args(argv)
    try:
        print(json.dumps(done(given.what, given.address, given.region, given.names)))
    except (IndexGone, IndexRefused, PoolError, OSError) as error:
        sys.exit(f"index tool: {error}")


if __name__ == "__main__":
    main(sys.argv[1:])
