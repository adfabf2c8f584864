"""Stores beside the compute: what steps have copied out of the cache goes into the pool on a thread.

So a store may still be under way when its request has ended, or be lost with the engine: then it is a miss.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import threading
import time
from collections import Counter
from collections.abc import Callable

import torch

from e2e.inside.scheduler_side import Store

#: Steps whose chunks are under way at most; a step that completes more waits.
_MOST = 8
#: So long a lot that is not whole waits for what the next step completes. Seconds.
_LINGER_S = 0.05
#: A chunk and what was copied of it, on the cache's device.
Copied = tuple[Store, torch.Tensor]
#: Nobody lingers who is waited for.
_NOW: tuple[list[Copied], torch.cuda.Event | None] = ([], None)
log = logging.getLogger("vllm.maru_e2e.storer")


class Storer:
    """``put(copied, ready)`` is called with all that was submitted, in that order, ``lot`` chunks or some more at a
    time: with every call the thread takes the interpreter away from the engine's, which begins the next step."""

    def __init__(self, put: Callable[[list[Copied], torch.cuda.Event | None], None], *, lot: int = 1) -> None:
        self._put, self._lot = put, lot
        self._queue: queue.Queue[tuple[list[Copied], torch.cuda.Event | None] | None] = queue.Queue(_MOST)
        self._busy: Counter[str] = Counter()
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="embedded-storer", daemon=True)
        self._thread.start()

    def submit(self, copied: list[Copied], ready: torch.cuda.Event | None) -> None:
        """It is the storer's from now on. ``ready``: when a GPU has copied it, and what was submitted before."""
        with self._changed:
            self._busy.update(store.request for store, _ in copied)
        self._queue.put((copied, ready))

    def busy_for(self, request: str) -> bool:
        """Is a chunk of this request under way?"""
        with self._changed:
            return request in self._busy

    def settle(self, limit_s: float) -> bool:
        """Waits until nothing is under way. False: it still is."""
        deadline = time.monotonic() + limit_s
        with contextlib.suppress(queue.Full):
            self._queue.put(_NOW, timeout=limit_s)
        with self._changed:
            return self._changed.wait_for(lambda: not self._busy, deadline - time.monotonic())

    def _run(self) -> None:
        more = True
        while more:
            copied, ready, more = self._next()
            try:
                with torch.inference_mode():
                    self._put(copied, ready)
            except Exception:  # the thread must live on
                log.exception("Storing %d chunks failed", len(copied))
            with self._changed:
                self._busy -= Counter(store.request for store, _ in copied)
                self._changed.notify_all()

    def _next(self) -> tuple[list[Copied], torch.cuda.Event | None, bool]:
        """What is to be put, when all of it is ready, and whether more may come."""
        found: list[Copied] = []
        ready, limit_s = None, None
        with contextlib.suppress(queue.Empty):
            while len(found) < self._lot:
                if (item := self._queue.get(timeout=limit_s)) is None:
                    return found, ready, False
                if item is _NOW:
                    break
                found += item[0]
                ready, limit_s = item[1], _LINGER_S
        return found, ready, True

    def close(self, limit_s: float = 5.0) -> None:
        """Stores what is left, as far as the limit goes."""
        with contextlib.suppress(queue.Full):
            self._queue.put(None, timeout=limit_s)
        self._thread.join(limit_s)
