"""The pool: memory that holds objects, and an index, elsewhere, that knows where each one is.

What is written is hashed before it is copied there, and what is read is hashed after it was copied out: whatever
happens to memory, index or other engines in between, the answer is the very bytes or a miss. An index that is gone is a
miss too, and counted. Imports no torch: a host may share a pool without having one.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

from e2e.inside.evidence import Evidence
from e2e.inside.index import protocol as p
from e2e.inside.index.client import IndexGone, IndexRefused
from e2e.inside.memory import Memory
from e2e.inside.publish import LOAD, STORE, Loading, Storing
from e2e.inside.region import PoolError

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
        self, memory: Memory, size: int, *, index: Index, evidence: Evidence, evict: bool = False
    ) -> None:  # fmt: skip
        """``memory`` of ``size`` bytes. ``evict``: may a full pool drop what was not used for the longest time?

        Raises PoolError when the index is none of this pool.
        """
        self.memory, self.size, self.evidence = memory, size, evidence
        self._index, self.evicts = index, evict
        self._require_index()

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
        return (groups and self.ask(p.Find(list(groups), pin))) or [None] * len(groups)

    def unpin(self, pin: str) -> None:
        self.ask(p.Unpin(pin))

    def put(
        self, group: str, tag: str, objects: Sequence[tuple[str, Any]], *, evicted: list[str] | None = None,
        pause: Callable[[], object] = lambda: None, steps: Sequence[Storing] = STORE,
    ) -> str:  # fmt: skip
        """Stores named buffers as one group, instead of what it was. Empty, or why it is not there afterwards:
        ``no_room``, or ``lost`` with the index. ``tag``: see ``protocol.Publish``. ``evicted``: a list to which groups
        are added that went for it; they are counted in any case. ``pause``: called between taking room and filling it.
        ``steps``: others than ``STORE`` are a planted fault's."""
        (why,) = self.putting([Group(group, tag, objects)], evicted=evicted, pause=pause, steps=steps).end()
        return why

    def putting(
        self, groups: Sequence[Group], *, evicted: list[str] | None = None,
        pause: Callable[[], object] = lambda: None, steps: Sequence[Storing] = STORE,
    ) -> Putting:  # fmt: skip
        """As ``put``, of several and up to the copying, which may go on beside the caller until ``end``."""
        return Putting(self, groups, evicted if evicted is not None else [], pause, steps)

    def locate(self, groups: Sequence[str]) -> list[dict[str, p.Extent]]:
        """Name -> place of each group's objects; empty for a group that is not there."""
        found = self.ask(p.Locate(list(groups))) or [[] for _ in groups]
        return [{extent.name: extent for extent in extents} for extents in found]

    def read(self, extent: p.Extent | None, out: Any, *, steps: Sequence[Loading] = LOAD) -> bool:
        """Copies an object into the buffer ``out`` (of its size). False if there is none, it has another size, or its
        bytes don't match the checksum. ``steps``: others than ``LOAD`` are a planted fault's."""
        return self.reading([extent], [out], steps=steps).end() == [True]

    def reading(
        self, extents: Sequence[p.Extent | None], outs: Sequence[Any], *, steps: Sequence[Loading] = LOAD
    ) -> Reading:
        """As ``read``, of several and up to the copying, which may go on beside the caller until ``end``."""
        return Reading(self, extents, outs, steps)

    def forget(self, groups: Sequence[str]) -> None:
        self.ask(p.Forget(list(groups)))

    def clear(self) -> bool:
        """Forgets every object. Loads under way notice by the checksum. False if nobody heard."""
        return self.ask(p.Clear(), failed=False) is None

    def ask_all(self, requests: Sequence[p.Single]) -> list[object]:
        """The index's answers, None where there is none."""
        if len(requests) < 2:
            return [self.ask(request) for request in requests]
        answers: list[p.Answer] | None = self.ask(p.All([*requests]))
        if answers is None:
            return [None] * len(requests)
        refused = [answer.refused for answer in answers if answer.refused]
        if refused:
            self.evidence.count({"index_errors": len(refused)})
            log.warning("%s: %s", type(requests[0]).__name__, refused[0])
        return [
            None if answer.refused is not None else p.value(request, answer)
            for request, answer in zip(requests, answers, strict=True)
        ]

    def ask(self, request: p.AnyRequest, failed: object = None) -> object:
        """The index's answer, or ``failed`` and a count where there is none."""
        began = time.monotonic()
        try:
            return self._index(request)
        except (IndexGone, IndexRefused) as error:
            self.evidence.count({"index_errors": 1})
            log.warning("%s: %s", type(request).__name__, error)
            return failed
        finally:
            self.evidence.count({"index_late": int(time.monotonic() - began > LATE_S)})


@dataclass(frozen=True)
class Group:
    """``objects``: names and buffers. ``tag``: see ``protocol.Publish``."""

    name: str
    tag: str
    objects: Sequence[tuple[str, Any]]


class Putting:
    """Groups on their way into the pool: each step of ``Storing`` is a method, for all that got so far."""

    def __init__(
        self, pool: Pool, groups: Sequence[Group], evicted: list[str], pause: Callable[[], object],
        steps: Sequence[Storing],
    ) -> None:  # fmt: skip
        self._pool, self._memory, self._groups = pool, pool.memory, groups
        self._evicted, self._pause = evicted, pause
        self._checksums = self._memory.checksums([buffer for group in groups for _, buffer in group.objects])
        self._written: Callable[[], object] = lambda: None
        self._rooms: list[Sequence[p.Room]] = [() for _ in groups]
        self._why = ["" for _ in groups]
        begins = [*takewhile(lambda step: step is not Storing.WRITE_BACK, steps)]
        self._left = steps[len(begins) :]
        self._walk(begins)

    def end(self) -> list[str]:
        """Of each what ``put`` answers."""
        self._walk(self._left)
        return self._why

    def _walk(self, steps: Sequence[Storing]) -> None:
        for step in steps:
            getattr(self, step.value)()

    @property
    def _going(self) -> list[int]:
        return [number for number, why in enumerate(self._why) if not why]

    def reserve(self) -> None:
        sizes = [[self._memory.size(buffer) for _, buffer in group.objects] for group in self._groups]
        answers = self._pool.ask_all([p.Reserve(each, self._pool.evicts) for each in sizes])
        for number, reserved in enumerate(answers):
            if reserved is None:
                self._why[number] = "lost"
                continue
            self._evicted += reserved.evicted
            if reserved.rooms is None:
                self._why[number] = "no_room"
            else:
                self._rooms[number] = reserved.rooms
        gone = sum(len(reserved.evicted) for reserved in answers if reserved is not None)
        self._pool.evidence.count({"evictions": gone})

    def write(self) -> None:
        starts, buffers = [], []
        for number in self._going:
            self._pause()
            starts += [room.start for room in self._rooms[number]]
            buffers += [buffer for _, buffer in self._groups[number].objects]
        self._memory.write(starts, buffers)
        self._written = self._memory.mark()

    def write_back(self) -> None:
        self._written()
        for number in self._going:
            for room in self._rooms[number]:
                self._memory.write_back(room.start, room.size)

    def publish(self) -> None:
        found = iter(self._checksums())
        checksums = [[next(found) for _ in group.objects] for group in self._groups]
        going = self._going
        answers = self._pool.ask_all([self._published(number, checksums[number]) for number in going])
        for number, there in zip(going, answers, strict=True):
            self._why[number] = "" if there else "lost"

    def _published(self, number: int, checksums: Sequence[str]) -> p.Publish:
        group = self._groups[number]
        written = [
            p.Written(room.ticket, name, checksum)
            for room, (name, _), checksum in zip(self._rooms[number], group.objects, checksums, strict=True)
        ]
        return p.Publish(group.name, group.tag, written)


class Reading:
    """Objects on their way out: each step of ``Loading`` is a method. ``there``: of each, is there one of its size?"""

    def __init__(
        self, pool: Pool, extents: Sequence[p.Extent | None], outs: Sequence[Any], steps: Sequence[Loading]
    ) -> None:
        memory = self._memory = pool.memory
        self.there = [
            one is not None and one.size == memory.size(out) and one.start + one.size <= pool.size
            for one, out in zip(extents, outs, strict=True)
        ]
        self._extents = [extent for extent, there in zip(extents, self.there, strict=True) if there]
        self._outs = [out for out, there in zip(outs, self.there, strict=True) if there]
        self._right = [True] * len(self._extents)
        begins = [*takewhile(lambda step: step is not Loading.VERIFY, steps)]
        self._left = steps[len(begins) :]
        for step in begins:
            getattr(self, step.value)()

    def end(self) -> list[bool]:
        """Of each: is it there, and the very object?"""
        for step in self._left:
            getattr(self, step.value)()
        right = iter(self._right)
        return [there and next(right) for there in self.there]

    def fetch(self) -> None:
        for extent in self._extents:
            self._memory.fetch(extent.start, extent.size)

    def copy(self) -> None:
        self._memory.read([extent.start for extent in self._extents], self._outs)

    def verify(self) -> None:
        self._right = self._memory.right(self._outs, [extent.checksum for extent in self._extents])
