"""Raw KV of recent cold runs, kept on the host within a fixed number of bytes: what a wrong page is compared with."""

from __future__ import annotations

from collections import deque

import torch


class Ring:
    """Room for ``limit`` bytes, handed out front to back; what is overrun is forgotten. Made once, touched once: a
    fresh allocation per request would cost more than hashing it."""

    def __init__(self, limit: int, *, pinned: bool) -> None:
        self._bytes = torch.zeros(limit, dtype=torch.uint8, pin_memory=pinned)
        self._at = 0
        self._held: deque[tuple[int, int, int]] = deque()

    def take(self, key: int, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor | None:
        """An uninitialised tensor that holds until it is overrun, or None when it is larger than the ring."""
        size = dtype.itemsize
        for extent in shape:
            size *= extent
        size = -(-size // 64) * 64
        if size > len(self._bytes):
            return None
        if self._at + size > len(self._bytes):
            self._at = 0
        start, self._at = self._at, self._at + size
        self._held = deque(h for h in self._held if h[0] != key and (h[2] <= start or h[1] >= self._at))
        self._held.append((key, start, self._at))
        return self._view(start, shape, dtype)

    def find(self, key: int, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor | None:
        """What was written for ``key``, or None when it was overrun."""
        start = next((start for held, start, _ in self._held if held == key), None)
        return None if start is None else self._view(start, shape, dtype)

    def _view(self, start: int, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        count = torch.Size(shape).numel()
        return self._bytes[start : start + count * dtype.itemsize].view(dtype).view(shape)
