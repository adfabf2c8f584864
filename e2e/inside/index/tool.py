"""What a pool holds, listed and damaged: ``python -m e2e.inside.index.tool HOST:PORT REGION list``, or one of the
damages and the groups that it strikes. Prints JSON; no damage tells the index more than its owner would."""

from __future__ import annotations

import argparse
import json
import mmap
import sys
from collections.abc import Callable
from pathlib import Path

from e2e.inside.index import protocol as p
from e2e.inside.index.client import Client, IndexGone, IndexRefused


class Pool:
    """An index with its region, as raw bytes."""

    def __init__(self, address: str, region: Path) -> None:
        self.index = Client(address, name="tool", limit_s=10.0)
        with region.open("r+b") as file:
            self.bytes = mmap.mmap(file.fileno(), 0)

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
    rooms = pool.index(p.Reserve([one.size // 2 for one in extents], evict=True))
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
    made.__name__: made for made in (delete, flip, tear, truncate, replace)
}  # fmt: skip


def main(argv: list[str]) -> None:
    words = argparse.ArgumentParser(prog="index tool")
    words.add_argument("address")
    words.add_argument("region", type=Path)
    words.add_argument("what", choices=["list", *DAMAGES])
    words.add_argument("groups", nargs="*")
    given = words.parse_args(argv)
    try:
        pool = Pool(given.address, given.region)
        for group in given.groups:
            DAMAGES[given.what](pool, group)
        print(json.dumps([name for name, _ in pool.index(p.List())]))
    except (IndexGone, IndexRefused, OSError) as error:
        sys.exit(f"index tool: {error}")


if __name__ == "__main__":
    main(sys.argv[1:])
