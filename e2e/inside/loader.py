"""Loads: pool -> staging -> paged cache, in the step, on a thread, or on a thread while the forward runs.

Nothing is placed that was not verified, and nothing is reported as loaded before it was: a missing or torn object is
always a reported failure. Only a load that is overlapped layer by layer can fail when its request is released already;
then the forward that waits for the layer is void, see ``WorkerSide.end_step``.

A GPU copies on a stream of its own, and verifies and places on another: the next pieces are under way meanwhile.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass

import torch

from e2e.inside import keys
from e2e.inside.geometry import PagedLayer
from e2e.inside.index.protocol import Extent
from e2e.inside.job import Job
from e2e.inside.pieces import Piece, ahead, pieces, tokens_of
from e2e.inside.placement.base import buffers
from e2e.inside.pool import Pool, Reading

#: On a GPU: bytes under way, and parts in which the layers of an overlapped load are copied. One layer's objects lie
#: apart in the pool, and those of neighbours together: few large copies, since one thread begins them all.
_UNDER_WAY, _PARTS = 512 << 20, 8
log = logging.getLogger("vllm.maru_e2e.loader")
Located = Mapping[int, Mapping[str, Extent]]


@dataclass(frozen=True)
class _Begun:
    """A piece that is being copied into ``share``, [chunks, 2, l, chunk, H, D] or, of layerwise objects,
    [chunks, l, 2, chunk, H, D]. ``copied``: on CUDA, when it is."""

    piece: Piece
    share: torch.Tensor
    reading: Reading
    copied: torch.cuda.Event | None


class Loader:
    """Reads and places. ``place(job, staged, layers, slots)`` scatters ``staged`` [l, 2, T, H, D] into ``layers``
    (indices) and returns the number of placement calls."""

    def __init__(
        self, pool: Pool, layers: Sequence[PagedLayer], *, rank: int, chunk_tokens: int, pace_s: float, slow_s: float,
        place: Callable[[Job, torch.Tensor, range, torch.Tensor], int],
    ) -> None:  # fmt: skip
        self._pool, self._layers, self._rank, self._chunk, self._pace_s = pool, layers, rank, chunk_tokens, pace_s
        self._place, self._slow_s, self._closing = place, slow_s, threading.Event()
        one = layers[0]
        self._device, self._row = one.device, (one.heads, one.head_size)
        self._chunk_bytes = len(layers) * 2 * chunk_tokens * one.heads * one.head_size * one.dtype.itemsize
        on_gpu = self._device.type == "cuda"
        self._stream = torch.cuda.Stream(self._device) if on_gpu else None
        self._copies = torch.cuda.Stream(self._device) if on_gpu else None
        self._queue: queue.Queue[tuple[Job, torch.cuda.Event | None] | None] = queue.Queue()
        self._thread = threading.Thread(target=self._run, name="embedded-loader", daemon=True)
        self._thread.start()

    def submit(self, job: Job) -> None:
        """Loads on the thread. On CUDA after what the model's stream was given so far: blocks may still be in use."""
        before = torch.cuda.current_stream().record_event() if self._stream else None
        self._queue.put((job, before))

    def load_now(self, job: Job) -> None:
        """Loads in the caller's thread and stream, all layers at once."""
        with self._failing(job):
            self._load(job)

    def _run(self) -> None:
        while (item := self._queue.get()) is not None:
            job, before = item
            # a thread of its own isn't in the worker's inference mode, and jobs are made there
            with torch.inference_mode(), self._failing(job), self._on(self._stream):
                if before is not None:
                    self._stream.wait_event(before)
                self._load(job, beside=True)

    @contextmanager
    def _failing(self, job: Job) -> Iterator[None]:
        try:
            yield
        except Exception:  # whoever loads must live on, and the load must be reported
            log.exception("Loading %s failed", job.load.request)
            job.fail()

    def _on(self, stream: torch.cuda.Stream | None) -> AbstractContextManager:
        return nullcontext() if stream is None else torch.cuda.stream(stream)

    def _load(self, job: Job, *, beside: bool = False) -> None:
        """In the current stream. ``beside``: the engine goes on meanwhile."""
        rank = job.fault.share(self._rank, job.scene)
        groups = [f"{key}@{rank}" for key in job.load.keys]
        located = dict(enumerate(self._pool.locate(groups)))
        together = max(job.layers // _PARTS, 1) if self._copies else 1
        todo = pieces(
            job.load, layers=job.layers, together=together, chunk_tokens=self._chunk, chunk_bytes=self._chunk_bytes
        )
        begin = (self._begin(job, piece, groups, located) for piece in todo)
        for begun in ahead(begin, self._count_ahead(max(todo, key=lambda piece: len(piece.layers)))):
            staged, lost = self._staged(job, begun)
            if staged is None:  # it is forgotten with all that stands behind it, so that they are stored anew
                self._pool.forget(groups[lost:])
                job.fail()
                return
            if beside and begun.piece is todo[0]:
                self._closing.wait(self._slow_s * len(job.load.keys))
            self._put(job, begun.piece, staged, last=begun.piece.chunks.stop == todo[-1].chunks.stop, beside=beside)

    def _count_ahead(self, piece: Piece) -> int:
        """Pieces like this that are under way while one is looked at. On a CPU a begun one is a copied one."""
        size = self._chunk_bytes * len(piece.chunks) * len(piece.layers) // len(self._layers)
        return max(_UNDER_WAY // size, 1) if self._copies else 0

    def _begin(self, job: Job, piece: Piece, groups: Sequence[str], located: Located) -> _Begun:
        began = time.perf_counter()
        storage_format = job.load.settings.storage_format
        extents = [
            located[chunk].get(name)
            for chunk in piece.chunks
            for name in keys.object_names(groups[chunk], storage_format, piece.layers)
        ]
        with self._on(self._copies):
            share = torch.empty(self._shape(job, piece), dtype=self._layers[0].dtype, device=self._device)
            reading = self._pool.reading(extents, buffers(share, len(extents)), steps=job.fault.load_steps)
            copied = self._copies.record_event() if self._copies else None
        job.read_s += time.perf_counter() - began
        return _Begun(piece, share, reading, copied)

    def _shape(self, job: Job, piece: Piece) -> tuple[int, ...]:
        """Of a piece's objects as they are stored: a chunk's is [2, L, chunk, H, D], as in Maru."""
        lead = (2, len(piece.layers)) if self._chunkwise(job) else (len(piece.layers), 2)
        return len(piece.chunks), *lead, self._chunk, *self._row

    def _chunkwise(self, job: Job) -> bool:
        return job.load.settings.storage_format == "chunkwise"

    def _staged(self, job: Job, begun: _Begun) -> tuple[torch.Tensor | None, int]:
        """[l, 2, T, H, D] of a piece's tokens; else None, and the first chunk that is missing or torn."""
        began = time.perf_counter()
        if begun.copied:
            stream = torch.cuda.current_stream(self._device)
            stream.wait_event(begun.copied)
            begun.share.record_stream(stream)
        right, piece = begun.reading.end(), begun.piece
        kv = begun.share.permute(2, 1, 0, 3, 4, 5) if self._chunkwise(job) else begun.share.permute(1, 2, 0, 3, 4, 5)
        each = len(right) // len(piece.chunks)
        for at, chunk in enumerate(piece.chunks):
            objects = slice(at * each, (at + 1) * each)
            if not self._taken(job, chunk, kv[:, :, at], begun.reading.there[objects], right[objects]):
                return None, chunk
        job.read_s += time.perf_counter() - began
        skipped = job.load.first + piece.tokens.start - piece.chunks.start * self._chunk
        staged = kv.flatten(2, 3)[:, :, skipped : skipped + piece.tokens.stop - piece.tokens.start]
        return job.fault.staged(staged, piece.layers, job.scene), 0

    def _taken(self, job: Job, chunk: int, kv: torch.Tensor, there: Sequence[bool], right: Sequence[bool]) -> bool:
        """Is ``kv`` [l, 2, chunk, H, D] to be placed? A planted fault may put up with nothing."""
        fault, scene = job.fault, job.scene
        vanished = fault.vanished(chunk, len(job.load.keys), scene)
        known = zip(there, right, strict=True)
        good = not vanished and all(ok or (whole and fault.unreadable(True, scene)) for whole, ok in known)
        if not (good or vanished or fault.unreadable(False, scene)):
            return False
        if not good:
            kv.zero_()
            job.slots[tokens_of(job.load, range(chunk, chunk + 1), self._chunk)] = -1
        elif (found := fault.found(job.load.keys[chunk], kv, scene)) is not kv:
            kv.copy_(found)
        return True

    def _put(self, job: Job, piece: Piece, staged: torch.Tensor, *, last: bool, beside: bool) -> None:
        """``last``: of the load's tokens."""
        began, slots = time.perf_counter(), job.slots[piece.tokens]
        release = min(job.load.settings.release_after_layers, job.layers)
        for group in [range(i, i + 1) for i in piece.layers] if job.overlap and last else [piece.layers]:
            if job.overlap and last and group.start == release and not job.orphaned:
                # Small copies would be over before the forward starts, on a CPU always: hold them until it asks,
                # so that overlap is sure to happen. Timed requests aren't held (pace_s 0).
                pace_s = job.load.settings.pace_s
                held = time.perf_counter()
                job.awaited.wait(job.fault.hold_s or (self._pace_s if pace_s is None else pace_s))
                began += time.perf_counter() - held
            rows = staged[group.start - piece.layers.start : group.stop - piece.layers.start]
            job.places += self._place(job, rows, group, slots)
            if last:
                if beside and self._stream:
                    job.events += [self._stream.record_event()] * len(group)
                job.land(group.stop - 1)
        job.place_s += time.perf_counter() - began

    def close(self, limit_s: float = 5.0) -> None:
        self._closing.set()
        self._queue.put(None)
        self._thread.join(limit_s)
