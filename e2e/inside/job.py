"""A load under way, as whoever loads it and the forward that waits for it see it."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

import torch

from e2e.inside import faults
from e2e.inside.scheduler_side import Load


@dataclass
class Job:
    """One load under way. ``landed`` layers are in the paged cache (CPU) or queued with an event (CUDA). ``late``: its
    request was released when it failed; ``told``: vLLM knows that. ``read_s``, ``place_s``: what the host did so long,
    or waited for."""

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
    late: bool = False
    told: bool = False
    seen_by_forward: bool = False
    pending_at_forward: int = 0
    blocking_waits: int = 0
    read_s: float = 0.0
    place_s: float = 0.0
    events: list[torch.cuda.Event] = field(default_factory=list)
    changed: threading.Condition = field(default_factory=threading.Condition)
    awaited: threading.Event = field(default_factory=threading.Event)

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
            self.late = self.reported
            self.failed = True
            self.changed.notify_all()
