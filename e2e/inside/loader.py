"""Loads: pool -> staging -> paged cache, in the step, on a thread, or on a thread while the forward runs.

A load is read and verified whole before anything is placed or reported, so a missing or torn object is always a
reported failure and never half a load. Placing then goes layer by layer; an overlapped load is reported as received
after ``release_after_layers`` layers and its other layers are waited for inside the forward.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field

import torch

from e2e.inside import faults, keys
from e2e.inside.geometry import PagedLayer
from e2e.inside.index.protocol import Extent
from e2e.inside.placement.base import raw
from e2e.inside.pool import Pool
from e2e.inside.scheduler_side import Load

log = logging.getLogger("vllm.maru_e2e.loader")


@dataclass
class Job:
    """One load under way. ``landed`` layers are in the paged cache (CPU) or queued with an event (CUDA). ``read_s``,
    ``place_s``: what the host did so long."""

    load: Load
    slots: torch.Tensor
    layers: int
    overlap: bool
    scene: faults.Scene
    fault: faults.Fault = faults.NONE
    landed: int = 0
    places: int = 0
    failed: bool = False
    reported: bool = False
    orphaned: bool = False
    journaled: bool = False
    seen_by_forward: bool = False
    pending_at_forward: int = 0
    blocking_waits: int = 0
    read_s: float = 0.0
    place_s: float = 0.0
    events: list[torch.cuda.Event] = field(default_factory=list)
    changed: threading.Condition = field(default_factory=threading.Condition)
    awaited: threading.Event = field(default_factory=threading.Event)
    staging: list[torch.Tensor] = field(default_factory=list)

    @property
    def released(self) -> bool:
        """May the request be scheduled? With overlap from the first few layers on, else when all is there."""
        needed = min(self.load.settings.release_after_layers, self.layers) if self.overlap else self.layers
        return self.failed or (self.landed >= needed and self._on_device(needed))

    @property
    def finished(self) -> bool:
        return self.failed or (self.landed >= self.layers and self._on_device(self.layers))

    def _on_device(self, layers: int) -> bool:
        return not self.events or (len(self.events) >= layers and self.events[layers - 1].query())

    def wait_for_layer(self, layer: int, limit_s: float) -> bool:
        """Blocks the caller (and, on CUDA, its stream) until ``layer`` has landed. Did it have to wait? TimeoutError
        after ``limit_s``: a forward over a missing layer must not go on."""
        if self.failed:
            return False
        blocked = self.landed <= layer
        if blocked:
            self.awaited.set()
            with self.changed:
                if not self.changed.wait_for(lambda: self.failed or self.landed > layer, limit_s):
                    raise TimeoutError(f"layer {layer} of {self.load.request} did not land within {limit_s:g} s")
        if self.events and not self.failed:
            blocked = blocked or not self.events[layer].query()
            torch.cuda.current_stream().wait_event(self.events[layer])
        return blocked

    def land(self, layer: int) -> None:
        with self.changed:
            self.landed = layer + 1
            self.changed.notify_all()

    def fail(self) -> None:
        with self.changed:
            self.failed = True
            self.changed.notify_all()


class Loader:
    """Reads and places. ``place(job, staged, layers)`` scatters ``staged`` [l, 2, T, H, D] into ``layers`` (indices)
    and returns the number of placement calls."""

    def __init__(
        self, pool: Pool, layers: Sequence[PagedLayer], *, rank: int, chunk_tokens: int, pace_s: float, slow_s: float,
        place: Callable[[Job, torch.Tensor, range], int],
    ) -> None:  # fmt: skip
        self._pool, self._layers, self._rank, self._chunk, self._pace_s = pool, layers, rank, chunk_tokens, pace_s
        self._place, self._slow_s, self._closing = place, slow_s, threading.Event()
        self._device = layers[0].device
        self._stream = torch.cuda.Stream(self._device) if self._device.type == "cuda" else None
        self._queue: queue.Queue[tuple[Job, torch.cuda.Event | None] | None] = queue.Queue()
        self._thread = threading.Thread(target=self._run, name="embedded-loader", daemon=True)
        self._thread.start()

    def submit(self, job: Job) -> None:
        """Loads on the thread. On CUDA after what the model's stream was given so far: blocks may still be in use."""
        before = torch.cuda.current_stream().record_event() if self._stream else None
        self._queue.put((job, before))

    def load_now(self, job: Job) -> None:
        """Loads in the caller's thread and stream, all layers at once."""
        staged = self._read(job)
        if staged is None:
            job.fail()
            return
        self._put(job, self._to_device(job, staged), range(job.layers))
        job.land(job.layers - 1)

    def _read(self, job: Job) -> torch.Tensor | None:
        began = time.perf_counter()
        staged = self.read(job)
        job.read_s += time.perf_counter() - began
        return staged

    def _put(self, job: Job, moved: torch.Tensor, layers: range) -> None:
        began = time.perf_counter()
        job.places += self._place(job, moved, layers)
        job.place_s += time.perf_counter() - began

    def read(self, job: Job) -> torch.Tensor | None:
        """Staging tensor [L, 2, T, H, D] of the load's tokens on the host (pinned for CUDA), or None if any object is
        missing or torn; it is forgotten with all that stands behind it, so that they are stored anew."""
        load, one = job.load, self._layers[0]
        staged = torch.empty(
            (job.layers, 2, load.end - load.first, one.heads, one.head_size),
            dtype=one.dtype, pin_memory=self._stream is not None,
        )  # fmt: skip
        rank = job.fault.share(self._rank, job.scene)
        groups = [f"{key}@{rank}" for key in load.keys]
        for index, (group, extents) in enumerate(zip(groups, self._pool.locate(groups), strict=True)):
            start = index * self._chunk
            lo, hi = max(load.first, start) - start, min(load.end, start + self._chunk) - start
            if hi <= lo:
                continue
            at = start + lo - load.first
            if job.fault.vanished(index, len(load.keys), job.scene):
                staged[:, :, at : at + hi - lo] = 0
                job.slots[at : at + hi - lo] = -1
                continue
            found = self._read_chunk(group, extents, job)
            if found is None and job.fault.unreadable(False, job.scene):
                job.slots[at : at + hi - lo] = -1
                staged[:, :, at : at + hi - lo] = 0
                continue
            if found is None:
                self._pool.forget(groups[index:])
                return None
            found = job.fault.found(load.keys[index], found, job.scene)
            staged[:, :, at : at + hi - lo] = found[:, :, lo:hi]
        return job.fault.staged(staged, range(job.layers), job.scene)

    def _read_chunk(self, group: str, extents: Mapping[str, Extent], job: Job) -> torch.Tensor | None:
        """One chunk as a view [L, 2, chunk, H, D] of a fresh copy."""
        one, layers, storage_format = self._layers[0], job.layers, job.load.settings.storage_format
        per_layer = (2, self._chunk, one.heads, one.head_size)
        names = list(keys.object_names(group, storage_format, layers))
        share = torch.empty((layers, *per_layer), dtype=one.dtype)
        flat = share.view(torch.uint8).view(len(names), -1)
        for name, out in zip(names, flat, strict=True):
            extent = extents.get(name)
            whole = extent is not None and extent.size == out.numel()
            read = self._pool.read(extent, raw(out), steps=job.fault.load_steps)
            if not (read or (whole and job.fault.unreadable(True, job.scene))):
                return None
        if storage_format == "chunkwise":  # the object's own order is [2, L, chunk, H, D], as in Maru
            return share.view(2, layers, *per_layer[1:]).transpose(0, 1)
        return share

    def _to_device(self, job: Job, staged: torch.Tensor) -> torch.Tensor:
        if self._stream is None:
            return staged
        moved = staged.to(self._device, non_blocking=True)
        job.staging += [staged, moved]  # both must outlive the copies
        return moved

    def _run(self) -> None:
        while (item := self._queue.get()) is not None:
            job, before = item
            try:
                with torch.inference_mode():  # a thread of its own isn't in the worker's, and jobs are made there
                    self._load_layers(job, before)
            except Exception:  # the thread must live on, and the load must be reported
                log.exception("Loading %s failed", job.load.request)
                job.fail()

    def _load_layers(self, job: Job, before: torch.cuda.Event | None) -> None:
        staged = self._read(job)
        if staged is None:
            job.fail()
            return
        self._closing.wait(self._slow_s * len(job.load.keys))
        release = min(job.load.settings.release_after_layers, job.layers)
        groups = [range(i, i + 1) for i in range(job.layers)] if job.overlap else [range(job.layers)]
        with torch.cuda.stream(self._stream) if self._stream else nullcontext():
            if self._stream:
                self._stream.wait_event(before)
            for group in groups:
                if job.overlap and group.start == release and not job.orphaned:
                    # Small copies would be over before the forward starts, on a CPU always: hold them until it asks,
                    # so that overlap is sure to happen. Timed requests aren't held (pace_s 0).
                    pace_s = job.load.settings.pace_s
                    job.awaited.wait(job.fault.hold_s or (self._pace_s if pace_s is None else pace_s))
                moved = self._to_device(job, staged[group.start : group.stop])
                self._put(job, moved, group)
                if self._stream:
                    event = self._stream.record_event()
                    job.events += [event] * len(group)
                job.land(group.stop - 1)

    def close(self, limit_s: float = 5.0) -> None:
        self._closing.set()
        self._queue.put(None)
        self._thread.join(limit_s)
