"""Stores beside the compute: what a step has copied out of the cache goes into the pool on a thread.

So a store may still be under way when its request has ended, or be lost with the engine: then it is a miss.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import threading
from collections import Counter
from collections.abc import Callable

import torch

from e2e.inside.scheduler_side import Store

#: Steps whose chunks are under way at most; a step that completes more waits.
_MOST = 8
#: A chunk and what was copied of it, on the cache's device.
Copied = tuple[Store, torch.Tensor]
log = logging.getLogger("vllm.maru_e2e.storer")


class Storer:
    """``put(copied, ready)`` is called once for each that was submitted, in that order."""

    def __init__(self, put: Callable[[list[Copied], torch.cuda.Event | None], None]) -> None:
        self._put = put
        self._queue: queue.Queue[tuple[list[Copied], torch.cuda.Event | None] | None] = queue.Queue(_MOST)
        self._busy: Counter[str] = Counter()
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="embedded-storer", daemon=True)
        self._thread.start()

    def submit(self, copied: list[Copied], ready: torch.cuda.Event | None) -> None:
        """It is the storer's from now on. ``ready``: when a GPU has copied it."""
        with self._changed:
            self._busy.update(store.request for store, _ in copied)
        self._queue.put((copied, ready))

    def busy_for(self, request: str) -> bool:
        """Is a chunk of this request under way?"""
        with self._changed:
            return request in self._busy

    def settle(self, limit_s: float) -> bool:
        """Waits until nothing is under way. False: it still is."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._busy, limit_s)

    def _run(self) -> None:
        while (item := self._queue.get()) is not None:
            copied, _ = item
            try:
                with torch.inference_mode():
                    self._put(*item)
            except Exception:  # the thread must live on
                log.exception("Storing %d chunks of %s failed", len(copied), copied[0][0].request)
            with self._changed:
                self._busy -= Counter(store.request for store, _ in copied)
                self._changed.notify_all()

    def close(self, limit_s: float = 5.0) -> None:
        """Stores what is left, as far as the limit goes."""
        with contextlib.suppress(queue.Full):
            self._queue.put(None, timeout=limit_s)
        self._thread.join(limit_s)
