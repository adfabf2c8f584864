"""Stores: what a step completes is copied out of the paged cache while the forward runs, and put into the pool behind
it or, where they are slow, beside the steps that follow (``storer.py``)."""

from __future__ import annotations

import logging
import threading
from collections import deque

import torch

from e2e.inside import faults, keys
from e2e.inside.config import RequestSettings
from e2e.inside.placement.base import new_staging, raw, words
from e2e.inside.placement.index import Index
from e2e.inside.publish import STORE
from e2e.inside.rank import Rank
from e2e.inside.scheduler_side import Load, Store
from e2e.inside.storer import Storer

#: Requests whose stored keys are remembered while a fault is planted.
_REMEMBERED = 64
#: What ``Pool.put`` answers -> words for the log.
WHY_NOT = {
    "no_room": "the pool is full; set a larger maru_pool_size",
    "lost": "the index is gone, or was emptied meanwhile",
}
log = logging.getLogger("vllm.maru_e2e.embedded")


class Stores:
    """``index``: gathers. ``failed``: requests whose load failed in this step."""

    def __init__(self, rank: Rank, index: Index) -> None:
        self._rank, self._layers, self._index = rank, rank.layers, index
        self.failed: set[str] = set()
        self._stores: list[Store] = []
        self._staged: dict[str, torch.Tensor] = {}
        self._closing = threading.Event()
        self._storer = Storer(self._put) if rank.config.async_store else None
        # while a fault is planted
        self._late: list[tuple[int, Store, torch.Tensor]] = []
        self._storing: dict[str, int] = {}
        self._last_put: faults.Put | None = None
        self._stored: deque[tuple[tuple[str, RequestSettings], dict[int, str]]] = deque(maxlen=_REMEMBERED)

    def begin(self, stores: list[Store]) -> None:
        self._stores, self._staged = stores, {}
        self.failed.clear()
        for store in stores:
            store.settings = store.settings.on_rank(self._rank.number)
            if store.settings.fault:
                self._remember(store)
        early = [store for store in stores if faults.get(store.settings.fault).stores_early]
        for layer in range(len(self._layers) if early else 0):
            self._save(early, layer)

    def _remember(self, store: Store) -> None:
        owner = (store.request, store.settings)
        if not self._stored or self._stored[-1][0] != owner:
            self._stored.append((owner, {}))
        self._stored[-1][1][store.chunk] = store.key

    def known(self, load: Load) -> list[dict[int, str]]:
        """Chunk number -> key, per prompt stored with these settings while a fault was planted, oldest first."""
        return [table for (_, settings), table in self._stored if settings == load.settings]

    def save_layer(self, layer: int) -> None:
        """Copies this layer of the chunks that this step completes out of the paged cache."""
        late = [store for store in self._stores if not faults.get(store.settings.fault).stores_early]
        self._save(late, layer)
        for store in self._stores:
            if store.settings.fault:
                self._spoil(store, layer)

    def _spoil(self, store: Store, layer: int) -> None:
        fault, scene = faults.get(store.settings.fault), self._rank.scene(store.settings)
        kept = self._object(store, layer) if fault.stores_early else None
        # it acted only if there was something else in the blocks before
        if kept is not None and not torch.equal(words(kept), words(self._kv(store, layer).cpu())):
            scene.fired()
        fault.after_store(self._layers[layer], layer, store.blocks, scene)

    def _save(self, stores: list[Store], layer: int) -> None:
        for store in stores:
            self._object(store, layer).copy_(self._kv(store, layer))

    def _kv(self, store: Store, layer: int) -> torch.Tensor:
        """[2, chunk, H, D] as it stands in the paged cache."""
        layers, slots = [self._layers[layer]], self._block_slots(store.blocks)
        if store.settings.fault:
            scene = self._rank.scene(store.settings)
            slots = faults.get(store.settings.fault).gathered(slots, store.begun, store.generated, scene)
        return self._index.gather(layers, slots, new_staging(layers, slots.numel()))[0]

    def _object(self, store: Store, layer: int) -> torch.Tensor:
        """The layer's share [2, chunk, H, D] of what will be stored of the chunk, as a view: on the host and this
        process's alone until the step has ended, since its blocks may be another request's in the next one."""
        one, layers, chunkwise = (
            self._layers[0],
            len(self._layers),
            store.settings.storage_format == "chunkwise",
        )
        if store.key not in self._staged:  # a chunk's object is in Maru's order [2, L, chunk, H, D]
            lead = (2, layers) if chunkwise else (layers, 2)
            self._staged[store.key] = torch.empty(
                (*lead, self._rank.config.chunk_tokens, one.heads, one.head_size), dtype=one.dtype
            )
        staged = self._staged[store.key]
        return staged[:, layer] if chunkwise else staged[layer]

    def _block_slots(self, blocks: list[int]) -> torch.Tensor:
        first = torch.tensor(blocks, dtype=torch.int64)[:, None] * self._rank.block_size
        return (first + torch.arange(self._rank.block_size)).flatten().to(self._rank.device)

    def end_step(self) -> None:
        """Stores what this step completed, or has it stored."""
        for store in self._stores:
            if store.request in self.failed:  # what this step computed, it computed from what was not there
                continue
            if late := faults.get(store.settings.fault).stores_late:
                number = self._storing.setdefault(store.request, len(self._storing))
                self._late.append((number + late, store, self._staged[store.key]))
            else:
                self._hand_over(store, self._staged[store.key])
        self._stores, self._staged = [], {}
        self._store_late()

    def _hand_over(self, store: Store, staged: torch.Tensor) -> None:
        if self._storer:
            self._storer.submit(store, staged)
        else:
            self._put(store, staged)

    def _store_late(self) -> None:
        """A planted fault reads blocks some requests after it should have, when they may be somebody else's."""
        due = [(store, right) for number, store, right in self._late if number < len(self._storing)]
        self._late = [one for one in self._late if one[0] >= len(self._storing)]
        for store, right in due:
            for layer in range(len(self._layers)):
                self._save([store], layer)
            read = self._staged.pop(store.key)
            if not torch.equal(words(read), words(right)):
                self._rank.scene(store.settings).fired()
            self._hand_over(store, read)

    def _put(self, store: Store, staged: torch.Tensor) -> None:
        group, layerwise = f"{store.key}@{self._rank.number}", store.settings.storage_format == "layerwise"
        kv = staged if layerwise else staged.transpose(0, 1)
        if faults.get(store.settings.fault).reads_when_stored:
            self._read_again(store, kv)
        faults.get(store.settings.fault).stored(store.key, kv, self._rank.scene(store.settings))
        names = keys.object_names(group, store.settings.storage_format, len(self._layers))
        self._rank.count({"stores_begun": 1}, store.settings)
        parts, evicted = list(staged) if layerwise else [staged], []
        objects = [(name, raw(part)) for name, part in zip(names, parts, strict=True)]
        steps = faults.get(store.settings.fault).store_steps
        if steps != STORE:
            self._rank.scene(store.settings).fired()
        why = self._rank.pool.put(group, store.tag, objects, evicted=evicted, pause=self._take_time, steps=steps)
        if store.settings.fault:
            one = faults.Put(group, store.tag, objects, why, evicted, store.chunk == 0)
            why = faults.get(store.settings.fault).after_put(
                self._rank.pool, one, self._last_put, self._rank.scene(store.settings)
            )
            self._last_put = self._last_put if why else one
        if why:
            log.warning("Chunk %d of %s is not stored: %s.", store.chunk, store.request, WHY_NOT[why])
            self._rank.count({"store_failures": 1, why: 1}, store.settings)
        else:
            self._rank.count({"stored_chunks": 1, "stored_bytes": staged.nbytes}, store.settings)

    def _read_again(self, store: Store, kv: torch.Tensor) -> None:
        """A planted fault reads what lies in a chunk's blocks by now into ``kv`` [L, 2, chunk, H, D]."""
        self._take_time()
        right = kv.clone()
        for layer in range(len(self._layers)):
            kv[layer].copy_(self._kv(store, layer))
        if not torch.equal(words(kv), words(right)):
            self._rank.scene(store.settings).fired()

    def _take_time(self) -> None:
        if self._storer and self._rank.config.slow_s:
            self._closing.wait(self._rank.config.slow_s)

    def met(self, finished_requests: set[str]) -> None:
        """Counts those that ended while they were stored."""
        met = [request for request in finished_requests if self._storer and self._storer.busy_for(request)]
        if met:
            self._rank.pool.evidence.count({"stores_after_end": len(met)})

    def close(self) -> None:
        self._closing.set()
        if self._storer:
            self._storer.close()
