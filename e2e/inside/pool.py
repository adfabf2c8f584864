"""The pool: a mapped region that holds objects, and an index, elsewhere, that knows where each one is.

What is written is hashed before it is copied there, and what is read is hashed after it was copied out: whatever
happens to region, index or other engines in between, the answer is the very bytes or a miss. An index that is gone is a
miss too, and counted.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence

import torch
import xxhash

from e2e.inside.evidence import Evidence
from e2e.inside.index import protocol as p
from e2e.inside.index.client import IndexGone, IndexRefused
from e2e.inside.region import PoolError, region

log = logging.getLogger("vllm.maru_e2e.pool")
#: An answer of the index that took longer is counted as late. Seconds.
LATE_S = 0.1
#: ``index(request)`` -> its answer; raises IndexGone or IndexRefused
Index = Callable[[p.AnyRequest], object]


class Pool:
    """One process's handle. Safe to use from several threads.

    ``groups`` are names of what is stored, found and forgotten together: one rank's share of a chunk.
    """

    def __init__(
        self, path: str, size: int, *, index: Index, evidence: Evidence, evict: bool = False, numa: int | None = None
    ) -> None:  # fmt: skip
        """Opens or makes the region of ``size`` bytes at ``path``. ``evict``: may a full pool drop what was not used
        for the longest time? ``numa``: see ``region``.

        Raises PoolError when there is no room, the region can't be mapped, or the index is none of this pool.
        """
        self.size, self.evidence = size, evidence
        self._index, self._evict = index, evict
        self._require_index()
        self._region = region(path, size, numa=numa)
        self._bytes = torch.frombuffer(self._region, dtype=torch.uint8)

    def _require_index(self) -> None:
        try:
            indexed = self._index(p.Status()).size
        except (IndexGone, IndexRefused) as error:
            raise PoolError(f"No pool without its index: {error}; start it, or leave out embedded_index.") from None
        if indexed != self.size:
            raise PoolError(
                f"The index is of a pool of {indexed} bytes, and maru_pool_size is {self.size}; give both the same."
            )

    def find(self, groups: Sequence[str], *, pin: str | None = None) -> list[str | None]:
        """The tag of each of ``groups``, None of one that is not there. With ``pin``, a name, they stay until
        ``unpin``, or for two minutes."""
        return (groups and self._ask(p.Find(list(groups), pin))) or [None] * len(groups)

    def unpin(self, pin: str) -> None:
        self._ask(p.Unpin(pin))

    def put(
        self, group: str, tag: str, objects: Sequence[tuple[str, torch.Tensor]], *, evicted: list[str] | None = None,
        pause: Callable[[], object] = lambda: None, early: bool = False,
    ) -> str:  # fmt: skip
        """Stores named tensors (contiguous, on the host) as one group, instead of what it was. Empty, or why it is not
        there afterwards: ``no_room``, or ``lost`` with the index. ``tag``: see ``protocol.Publish``. ``evicted``: a
        list to which groups are added that went for it; they are counted in any case. ``pause``: called between taking
        room and filling it. ``early``, for a planted fault: it is published before it is filled."""
        parts = [(name, tensor.view(torch.uint8).flatten()) for name, tensor in objects]
        checksums = [_checksum(part) for _, part in parts]
        reserved = self._ask(p.Reserve([part.numel() for _, part in parts], self._evict))
        if reserved is None:
            return "lost"
        if reserved.evicted:
            self.evidence.count({"evictions": len(reserved.evicted)})
            (evicted if evicted is not None else []).extend(reserved.evicted)
        if (rooms := reserved.rooms) is None:
            return "no_room"
        written = [
            p.Written(room.ticket, name, checksum)
            for room, (name, _), checksum in zip(rooms, parts, checksums, strict=True)
        ]
        published = early and self._ask(p.Publish(group, tag, written))
        pause()
        for room, (_, part) in zip(rooms, parts, strict=True):
            self._bytes[room.start : room.start + room.size].copy_(part)
        return "" if published or self._ask(p.Publish(group, tag, written)) else "lost"

    def locate(self, groups: Sequence[str]) -> list[dict[str, p.Extent]]:
        """Name -> place of each group's objects; empty for a group that is not there."""
        found = self._ask(p.Locate(list(groups))) or [[] for _ in groups]
        return [{extent.name: extent for extent in extents} for extents in found]

    def read(self, extent: p.Extent | None, out: torch.Tensor, *, verify: bool = True) -> bool:
        """Copies an object into ``out`` (uint8, contiguous, of its size). False if there is none, it has another size,
        or its bytes don't match the checksum, unless a planted fault does not ``verify`` them."""
        if extent is None or extent.size != out.numel() or extent.start + extent.size > self.size:
            return False
        out.copy_(self._bytes[extent.start : extent.start + extent.size])
        return not verify or _checksum(out) == extent.checksum

    def forget(self, groups: Sequence[str]) -> None:
        self._ask(p.Forget(list(groups)))

    def clear(self) -> bool:
        """Forgets every object. Loads under way notice by the checksum. False if nobody heard."""
        return self._ask(p.Clear(), failed=False) is None

    def _ask(self, request: p.AnyRequest, failed: object = None) -> object:
        began = time.monotonic()
        try:
            return self._index(request)
        except (IndexGone, IndexRefused) as error:
            self.evidence.count({"index_errors": 1})
            log.warning("%s: %s", type(request).__name__, error)
            return failed
        finally:
            self.evidence.count({"index_late": int(time.monotonic() - began > LATE_S)})


def _checksum(data: torch.Tensor) -> str:
    return xxhash.xxh3_128_hexdigest(data.numpy())
