"""Faults of order and honesty: too early, too late, or failed and not said so."""

from __future__ import annotations

from collections.abc import Sequence

from e2e.inside.faults.base import Fault, Scene
from e2e.inside.geometry import PagedLayer
from e2e.inside.placement.base import words
from e2e.inside.publish import ANNOUNCED_EARLY, UNVERIFIED


class OverlapNotWaited(Fault):
    """An overlapped load is reported complete with layers still missing, and the forward doesn't wait: class B. They
    land after that forward."""

    name = "overlap_not_waited"
    waits = False
    hold_s = 10.0


class StoreBeforeForward(Fault):
    """A chunk is stored when its step begins, before its forward wrote the blocks: class B, store races compute."""

    name = "store_before_forward"
    stores_early = True


class FailedLoadSwallowed(Fault):
    """The first chunk vanished between lookup and load, and the load is reported good: class C."""

    name = "failed_load_swallowed"

    def strikes(self, chunk: int, chunks: int) -> bool:
        return chunk == 0

    def vanished(self, chunk: int, chunks: int, scene: Scene) -> bool:
        if not self.strikes(chunk, chunks):
            return False
        scene.fired()
        return True


class StoreWritesCache(Fault):
    """Storing changes the live cache: the first block's keys of the middle layer lose a bit. Class A, a write in the
    store path; the first answer is wrong too."""

    name = "store_writes_cache"

    def after_store(self, layer: PagedLayer, number: int, blocks: Sequence[int], scene: Scene) -> None:
        if number == scene.middle and blocks:
            scene.fired()
            # one bit below the sign: exponents change, and nothing becomes infinite
            words(layer.logical)[blocks[0], 0] ^= 1 << (8 * layer.dtype.itemsize - 6)


class AnnouncedEarly(Fault):
    """A chunk can be found before its bytes are there, and nobody looks at its checksum: class B. Harmless as long as a
    store has ended before anybody looks."""

    name = "announced_early"
    store_steps, load_steps = ANNOUNCED_EARLY, UNVERIFIED


class FreedWhileLoading(Fault):
    """A load whose request has ended is reported done at once, and writes on into blocks that are others' by then:
    class B."""

    name = "freed_while_loading"
    outlives_request = False


class ReadWhenStored(Fault):
    """A store copies nothing beforehand: it reads a chunk's blocks when it comes to it, and nobody holds them for it.
    Class B; harmless as long as the request goes on until then."""

    name = "read_when_stored"
    reads_when_stored = True
