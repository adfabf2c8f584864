"""Which bytes of the region are free."""

from __future__ import annotations

from bisect import bisect

#: Rooms start at multiples of it. Bytes.
ALIGNED = 64


class Rooms:
    """First fit over free runs, in the order of their starts; neighbours are joined."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.used = 0
        self._free = [(0, size)] if size else []

    def take(self, size: int) -> int | None:
        """Where ``size`` bytes are free from now on taken; None if there is no such run."""
        size = _whole(size)
        for index, (start, length) in enumerate(self._free):
            if length >= size:
                self._free[index : index + 1] = [(start + size, length - size)] if length > size else []
                self.used += size
                return start
        return None

    def give(self, start: int, size: int) -> None:
        """What ``take`` gave, with the same size."""
        size = _whole(size)
        self.used -= size
        index = bisect(self._free, (start, 0))
        end = start + size
        if index < len(self._free) and self._free[index][0] == end:
            end += self._free.pop(index)[1]
        if index and sum(self._free[index - 1]) == start:
            index -= 1
            start = self._free.pop(index)[0]
        self._free.insert(index, (start, end - start))


def _whole(size: int) -> int:
    return max(-(-size // ALIGNED), 1) * ALIGNED
