"""Stores: what a step completes is copied out of the paged cache when its forward has been given to the device, and
put into the pool behind it or, where they are slow, beside the steps that follow (``storer.py``)."""

from __future__ import annotations

import logging
import threading
from collections import Counter, defaultdict, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import torch

from e2e.inside import faults, keys
from e2e.inside.config import RequestSettings
from e2e.inside.pieces import ahead
from e2e.inside.placement.base import Placement, buffers, words
from e2e.inside.pool import Group, Putting
from e2e.inside.publish import STORE
from e2e.inside.rank import Rank
from e2e.inside.scheduler_side import Load, Store
from e2e.inside.storer import Copied, Storer

#: Requests whose stored keys are remembered while a fault is planted.
_REMEMBERED = 64
#: A GPU is given so many chunks at once, of some steps where each completes fewer, and copies so many such lots while
#: the index is asked for the next one's room.
_LOT, _AHEAD = 8, 2
#: Why a chunk is not there -> words for the log.
WHY_NOT = {
    "no_room": "the pool is full; set a larger maru_pool_size",
    "lost": "the index is gone, or was emptied meanwhile",
    "no_memory": "the GPU has no memory to copy it out of the cache; set a smaller --gpu-memory-utilization",
}
log = logging.getLogger("vllm.maru_e2e.embedded")


@dataclass(frozen=True)
class _Begun:
    """A lot on its way into the pool. ``evicted``: groups that went for it."""

    stores: Sequence[Store]
    groups: Sequence[Group]
    putting: Putting
    evicted: list[str]


class Stores:
    """``gathers``: copies chunks out of the cache."""

    def __init__(self, rank: Rank, gathers: Placement) -> None:
        self._rank, self._layers, self._gathers = rank, rank.layers, gathers
        self._stores: list[Store] = []
        self._staged: dict[str, torch.Tensor] = {}
        self._closing = threading.Event()
        on_gpu = rank.device.type == "cuda"
        self._lot, self._ahead = (_LOT, _AHEAD) if on_gpu else (1, 0)
        self._stream = torch.cuda.Stream(rank.device) if on_gpu else None
        self._storer = Storer(self._put_beside, lot=self._lot) if rank.config.async_store else None
        # while a fault is planted
        self._late: list[tuple[int, Store, torch.Tensor]] = []
        self._storing: dict[str, int] = {}
        self._last_put: faults.Put | None = None
        self._stored: deque[tuple[tuple[str, RequestSettings], dict[int, str]]] = deque(maxlen=_REMEMBERED)

    def begin(self, stores: list[Store]) -> None:
        self._stores, self._staged = stores, {}
        for store in stores:
            store.settings = store.settings.on_rank(self._rank.number)
            if store.settings.fault:
                self._remember(store)
            if faults.get(store.settings.fault).stores_early:
                self._save([store])

    def _remember(self, store: Store) -> None:
        owner = (store.request, store.settings)
        if not self._stored or self._stored[-1][0] != owner:
            self._stored.append((owner, {}))
        self._stored[-1][1][store.chunk] = store.key

    def known(self, load: Load) -> list[dict[int, str]]:
        """Chunk number -> key, per prompt stored with these settings while a fault was planted, oldest first."""
        return [table for (_, settings), table in self._stored if settings == load.settings]

    def end_step(self, *, void: bool) -> None:
        """Stores what this step completed, or has it stored. ``void``: of this step nothing is to be believed."""
        stores, self._stores = ([] if void else self._stores), []
        for lot in self._lots([store for store in stores if not faults.get(store.settings.fault).stores_early]):
            self._save(lot)
        for store in stores:
            if store.settings.fault:
                self._spoil(store, faults.get(store.settings.fault))
        self._hand_over([(store, self._staged[store.key]) for store in stores if self._due(store)])
        self._staged = {}
        self._store_late()

    def _spoil(self, store: Store, fault: faults.Fault) -> None:
        scene, kept = self._rank.scene(store.settings), self._staged.get(store.key)
        # it acted only if there was something else in the blocks before
        if fault.stores_early and kept is not None and not torch.equal(words(kept), words(self._kv([store])[0])):
            scene.fired()
        for number, layer in enumerate(self._layers):
            fault.after_store(layer, number, store.blocks, scene)

    def _due(self, store: Store) -> bool:
        """Now; or a planted fault has it later."""
        late = faults.get(store.settings.fault).stores_late
        if late and store.key in self._staged:
            number = self._storing.setdefault(store.request, len(self._storing))
            self._late.append((number + late, store, self._staged[store.key]))
        return not late and store.key in self._staged

    def _lots(self, stores: Sequence[Store]) -> Iterator[Sequence[Store]]:
        """Those that go together: neighbours of equal settings, and each alone that a planted fault looks at."""
        for settings, group in groupby(stores, key=lambda store: store.settings):
            same, most = [*group], 1 if settings.fault else self._lot
            yield from (same[at : at + most] for at in range(0, len(same), most))

    def _save(self, stores: Sequence[Store]) -> None:
        """Copies chunks out of the cache: their blocks may be another request's in the next step."""
        try:
            self._staged |= zip([store.key for store in stores], self._kv(stores), strict=True)
        except torch.OutOfMemoryError:
            if len(stores) > 1:
                for store in stores:
                    self._save([store])
                return
            self._rank.count({"stores_begun": 1, **self._missed(stores[0], "no_memory")}, stores[0].settings)

    def _kv(self, stores: Sequence[Store]) -> torch.Tensor:
        """What stands in the cache of chunks alike, [n, L, 2, chunk, H, D] or, as objects in Maru's order,
        [n, 2, L, ..]."""
        one, chunkwise = self._layers[0], stores[0].settings.storage_format == "chunkwise"
        lead = (2, len(self._layers)) if chunkwise else (len(self._layers), 2)
        shape = (len(stores), *lead, self._rank.config.chunk_tokens, one.heads, one.head_size)
        staged = torch.empty(shape, dtype=one.dtype, device=one.device)
        blocks = [block for store in stores for block in store.blocks]
        slots = self._rank.slots(blocks, range(len(blocks) * self._rank.block_size)).view(len(stores), -1)
        fault, scene = faults.get(stores[0].settings.fault), self._rank.scene(stores[0].settings)
        for store, own, rows in zip(stores, slots, staged.transpose(1, 2) if chunkwise else staged, strict=True):
            self._gathers.gather(self._layers, fault.gathered(own, store.begun, store.generated, scene), rows)
        return staged

    def _hand_over(self, copied: list[Copied]) -> None:
        if self._storer and copied:
            self._storer.submit(copied, self._stream and torch.cuda.current_stream().record_event())
        else:
            self._put(copied)

    def _store_late(self) -> None:
        """A planted fault reads blocks some requests after it should have, when they may be somebody else's."""
        due = [(store, right) for number, store, right in self._late if number < len(self._storing)]
        self._late = [one for one in self._late if one[0] >= len(self._storing)]
        for store, right in due:
            (read,) = self._kv([store])
            if not torch.equal(words(read), words(right)):
                self._rank.scene(store.settings).fired()
            self._hand_over([(store, read)])

    def _put_beside(self, copied: list[Copied], ready: torch.cuda.Event | None) -> None:
        """``ready``: None where nothing is on a GPU."""
        if ready is None:
            self._put(copied)
            return
        with torch.cuda.stream(self._stream):
            self._stream.wait_event(ready)
            for _, staged in copied:
                staged.record_stream(self._stream)
            self._put(copied)

    def _put(self, copied: list[Copied]) -> None:
        """In the current stream."""
        for settings, chunks in Counter(store.settings for store, _ in copied).items():
            self._rank.count({"stores_begun": chunks}, settings)
        ended: defaultdict[RequestSettings, Counter[str]] = defaultdict(Counter)
        staged = {store.key: each for store, each in copied}
        lots = self._lots([store for store, _ in copied])
        begin = (self._begin(lot, [staged[store.key] for store in lot]) for lot in lots)
        for begun in ahead(begin, self._ahead):
            ended[begun.stores[0].settings] += self._end(begun)
        for settings, counts in ended.items():
            self._rank.count(counts, settings)

    def _group(self, store: Store, staged: torch.Tensor) -> Group:
        name, storage_format = f"{store.key}@{self._rank.number}", store.settings.storage_format
        names = keys.object_names(name, storage_format, range(len(self._layers)))
        return Group(name, store.tag, [*zip(names, buffers(staged, len(names)), strict=True)])

    def _begin(self, stores: Sequence[Store], staged: Sequence[torch.Tensor]) -> _Begun:
        settings = stores[0].settings
        fault, evicted = faults.get(settings.fault), []
        if settings.fault:
            self._spoil_staged(*stores, *staged)
        groups = [self._group(store, each) for store, each in zip(stores, staged, strict=True)]
        putting = self._rank.pool.putting(groups, evicted=evicted, pause=self._take_time, steps=fault.store_steps)
        return _Begun(stores, groups, putting, evicted)

    def _spoil_staged(self, store: Store, staged: torch.Tensor) -> None:
        fault, scene = faults.get(store.settings.fault), self._rank.scene(store.settings)
        if fault.reads_when_stored:
            self._read_again(store, staged)
        fault.stored(
            store.key, staged if store.settings.storage_format == "layerwise" else staged.transpose(0, 1), scene
        )
        if fault.store_steps != STORE:
            scene.fired()

    def _end(self, begun: _Begun) -> Counter[str]:
        """What is to be counted."""
        counts: Counter[str] = Counter()
        for store, group, why in zip(begun.stores, begun.groups, begun.putting.end(), strict=True):
            if store.settings.fault:
                why = self._spoil_put(store, group, why, begun.evicted)
            if why:
                counts += self._missed(store, why)
            else:
                size = sum(self._rank.pool.memory.size(one) for _, one in group.objects)
                counts += Counter(stored_chunks=1, stored_bytes=size)
        return counts

    def _spoil_put(self, store: Store, group: Group, why: str, evicted: list[str]) -> str:
        one = faults.Put(group.name, group.tag, group.objects, why, evicted, store.chunk == 0)
        fault, scene = faults.get(store.settings.fault), self._rank.scene(store.settings)
        why = fault.after_put(self._rank.pool, one, self._last_put, scene)
        self._last_put = self._last_put if why else one
        return why

    def _missed(self, store: Store, why: str) -> Counter[str]:
        log.warning("Chunk %d of %s is not stored: %s.", store.chunk, store.request, WHY_NOT[why])
        return Counter({"store_failures": 1, why: 1})

    def _read_again(self, store: Store, staged: torch.Tensor) -> None:
        """A planted fault reads what lies in a chunk's blocks by now."""
        self._take_time()
        (now,) = self._kv([store])
        if not torch.equal(words(now), words(staged)):
            self._rank.scene(store.settings).fired()
        staged.copy_(now)

    def _take_time(self) -> None:
        if self._storer and self._rank.config.slow_s:
            self._closing.wait(self._rank.config.slow_s)

    def settle(self, limit_s: float) -> None:
        """Waits until all is stored that was computed, unless it is slow so that it is met under way."""
        if self._storer and not self._rank.config.slow_s and not self._storer.settle(limit_s):
            log.warning("Stores are still under way after %g s.", limit_s)

    def under_way(self, request: str) -> bool:
        return self._storer is not None and self._storer.busy_for(request)

    def met(self, finished_requests: set[str]) -> None:
        """Counts those that ended while they were stored."""
        met = [request for request in finished_requests if self.under_way(request)]
        if met:
            self._rank.pool.evidence.count({"stores_after_end": len(met)})

    def close(self) -> None:
        self._closing.set()
        if self._storer:
            self._storer.close()
