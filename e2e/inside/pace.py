"""A memory at the pace of a link: a read or a write is over no sooner than that link would have let it be.

What the memory itself takes is part of that time. So nothing gets slower than asked where the memory is fast enough;
where it is not, or where Python is too slow to wait so short a time, the figures reached say so. Nothing else of a link
is here: no coherence, no ordering, no line that is lost.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from e2e.base.pace import Pace
from e2e.inside.memory import Memory

#: A thread that sleeps wakes up so late, at times; the rest of a wait it looks at the clock.
_LATE_NS = 100_000


class Paced:
    """``memory`` over a link of this process alone, whose two directions don't hinder each other."""

    def __init__(self, memory: Memory, pace: Pace) -> None:
        self._memory, self._links = memory, {"read": _Direction(pace), "write": _Direction(pace)}

    def size(self, buffer: Any) -> int:
        return self._memory.size(buffer)

    def checksums(self, buffers: Sequence[Any]) -> Callable[[], list[str]]:
        return self._memory.checksums(buffers)

    def right(self, buffers: Sequence[Any], checksums: Sequence[str]) -> list[bool]:
        return self._memory.right(buffers, checksums)

    def write(self, starts: Sequence[int], buffers: Sequence[Any]) -> None:
        for start, buffer in zip(starts, buffers, strict=True):
            with self._transfer("write", buffer):
                self._memory.write([start], [buffer])

    def read(self, starts: Sequence[int], buffers: Sequence[Any]) -> None:
        for start, buffer in zip(starts, buffers, strict=True):
            with self._transfer("read", buffer):
                self._memory.read([start], [buffer])

    @contextmanager
    def _transfer(self, direction: str, buffer: Any) -> Iterator[None]:
        """A GPU copies beside us: what it did before is no part of this transfer, and what it does for it is."""
        self.mark()()
        with self._links[direction].transfer(self.size(buffer)):
            yield
            self.mark()()

    def mark(self) -> Callable[[], object]:
        return self._memory.mark()

    def write_back(self, start: int, size: int) -> None:
        self._memory.write_back(start, size)

    def fetch(self, start: int, size: int) -> None:
        self._memory.fetch(start, size)

    def counters(self) -> dict[str, int]:
        """Of each direction, so far: ``paced_reads``; ``paced_read_bytes``; ``paced_read_ns``, for which any was under
        way; and ``paced_read_late_ns``, the sum of what each took beyond its turn on the link, its latency as it was
        reached."""
        return {f"paced_{name}{what}": n for name, link in self._links.items() for what, n in link.counters().items()}


class _Direction:
    """Transfers have their turns one after the other; their latencies overlap."""

    def __init__(self, pace: Pace) -> None:
        self._pace, self._lock, self._free_ns = pace, threading.Lock(), 0.0
        self._under_way, self._since_ns = 0, 0
        self._count = self._bytes = self._busy_ns = self._late_ns = 0

    @contextmanager
    def transfer(self, size: int) -> Iterator[None]:
        """Runs what it is around, and is over when the link would be."""
        turn_ends = self._began(size)
        try:
            yield
            _wait_until(turn_ends + self._pace.latency_ns)
        finally:
            self._ended(size, turn_ends)

    def _began(self, size: int) -> float:
        with self._lock:
            now = time.perf_counter_ns()
            self._since_ns = self._since_ns if self._under_way else now
            self._under_way += 1
            self._free_ns = max(self._free_ns, now) + self._pace.transfer_ns(size)
            return self._free_ns

    def _ended(self, size: int, turn_ends: float) -> None:
        with self._lock:
            now = time.perf_counter_ns()
            self._under_way -= 1
            self._busy_ns += 0 if self._under_way else now - self._since_ns
            self._count, self._bytes = self._count + 1, self._bytes + size
            self._late_ns += max(round(now - turn_ends), 0)

    def counters(self) -> dict[str, int]:
        with self._lock:
            return {"s": self._count, "_bytes": self._bytes, "_ns": self._busy_ns, "_late_ns": self._late_ns}


def _wait_until(ns: float) -> None:
    if (left := ns - time.perf_counter_ns() - _LATE_NS) > 0:
        threading.Event().wait(left / 1e9)
    while time.perf_counter_ns() < ns:
        pass
