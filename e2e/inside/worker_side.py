"""The connector's half in the worker: it moves KV between the paged cache and the pool.

Call order that vLLM keeps in a step (docs/vllm.md#order-of-calls-in-a-step): preemptions, metadata bound,
``start_loads`` before the forward if the step has a sync load, else *after* it (0.29 and newer), per layer
``wait_for_layer`` and ``save_layer``, ``end_step``, ``finished``, ``invalid_blocks``. So nothing here assumes that
loads start first.
"""

from __future__ import annotations

import logging
import re
import threading
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial

import torch

from e2e.inside import faults, keys, placement
from e2e.inside.config import EmbeddedConfig, RequestSettings
from e2e.inside.geometry import PagedLayer
from e2e.inside.loader import Job, Loader
from e2e.inside.placement.base import new_staging, words
from e2e.inside.placement.index import Index
from e2e.inside.pool import Pool
from e2e.inside.scheduler_side import Answering, Load, Store
from e2e.inside.storer import Storer

#: Longest wait for one layer inside a forward, in seconds; past it the forward must not go on.
LAYER_LIMIT_S = 60.0
#: Requests whose stored keys are remembered while a fault is planted.
_REMEMBERED = 64
#: What ``Pool.put`` answers -> words for the log.
WHY_NOT = {
    "no_room": "the pool is full; set a larger maru_pool_size",
    "lost": "the index is gone, or was emptied meanwhile",
}
log = logging.getLogger("vllm.maru_e2e.embedded")


class WorkerSide:
    def __init__(
        self, config: EmbeddedConfig, pool: Pool, layers: dict[str, PagedLayer], *, block_size: int, rank: int,
        ranks: int = 1,
    ) -> None:  # fmt: skip
        """``layers``: vLLM layer name -> its paged tensor, in any order; index is the number in ``layers.<n>``."""
        names = sorted(layers, key=layer_number)
        self._number = {name: i for i, name in enumerate(names)}
        self._layers = [layers[name] for name in names]
        self._config, self._pool, self._block_size = config, pool, block_size
        self._rank, self._ranks = rank, ranks
        # on a GPU, looking for negative slots would make it wait for the host, and there are none
        self._index = Index(dense=self._device.type == "cuda")
        self._placements = {"index": self._index}
        self._around_placement: Callable[[], AbstractContextManager] = nullcontext
        if self._device.type == "cuda":
            self._warm_up()
        self._loader = Loader(
            pool, self._layers, rank=rank, chunk_tokens=config.chunk_tokens, pace_s=config.pace_s,
            slow_s=config.slow_s, place=self._place,
        )  # fmt: skip
        self._jobs: dict[str, Job] = {}
        self._invalid: set[int] = set()
        self._stores: list[Store] = []
        self._staged: dict[str, torch.Tensor] = {}
        self._failed: set[str] = set()
        self._closing = threading.Event()
        self._storer = Storer(self._put) if config.async_store else None
        # while a fault is planted
        self._late: list[tuple[int, Store, torch.Tensor]] = []
        self._storing: dict[str, int] = {}
        self._freed: set[str] = set()
        self._placed: dict[str, list[int]] = {}
        self._last_put: faults.Put | None = None
        self._loaded: dict[RequestSettings, list[int]] = {}
        self._stored: deque[tuple[tuple[str, RequestSettings], dict[int, str]]] = deque(maxlen=_REMEMBERED)

    @property
    def _device(self) -> torch.device:
        return self._layers[0].device

    # loads

    def start_loads(self, loads: list[Load]) -> None:
        for load in loads:
            load.settings = load.settings.on_rank(self._rank)
        tables = self._tables(loads)
        for load, table in zip(loads, tables, strict=True):
            fault, scene = faults.get(load.settings.fault), self._scene(load.settings, first=load.first)
            load.keys = fault.keys(load.keys, self._known(load), scene)
            job = Job(load, self._slots(load, table), len(self._layers), load.settings.overlap, scene, fault)
            self._count({"loads_begun": 1}, load.settings)
            if load.settings.load == "sync":
                self._loader.load_now(job)
                self._end(job)
                if job.failed:
                    self._failed.add(load.request)
            else:
                self._jobs[load.request] = job
                self._loader.submit(job)

    def _tables(self, loads: list[Load]) -> list[list[int]]:
        """The block table that each is placed by: its own, unless a planted fault has it otherwise."""
        tables = [load.blocks for load in loads]
        faulty = {load.settings for load in loads if load.settings.fault}
        for settings in faulty:
            at = [number for number, load in enumerate(loads) if load.settings == settings]
            former = [self._placed.get(loads[number].request) for number in at]
            fault, scene = faults.get(settings.fault), self._scene(settings)
            found = fault.into([tables[number] for number in at], former, scene)
            for number, table in zip(at, found, strict=True):
                tables[number] = table
                self._placed[loads[number].request] = loads[number].blocks
        return tables

    def _slots(self, load: Load, table: list[int]) -> torch.Tensor:
        tokens = torch.arange(load.first, load.end, dtype=torch.int64)
        blocks = torch.tensor(table, dtype=torch.int64)
        return (blocks[tokens // self._block_size] * self._block_size + tokens % self._block_size).to(self._device)

    def _place(self, job: Job, staged: torch.Tensor, group: range) -> int:
        how, layers = self._placement(job.load.settings.placement), self._layers[group.start : group.stop]
        with self._around_placement():
            return job.fault.place(faults.Placing(how, staged, layers, group, job.slots), job.scene)

    def around_placement(self, around: Callable[[], AbstractContextManager] | None) -> None:
        self._around_placement = around or nullcontext

    def _scene(self, settings: RequestSettings, *, first: int = 0) -> faults.Scene:
        fired = partial(self._count, {f"fired:{settings.fault}": 1}, settings)
        heads, tokens = (self._layers[0].logical.stride(axis) for axis in (3, 2))
        return faults.Scene(
            len(self._layers), self._block_size, self._config.chunk_tokens, fired, settings.placement, heads > tokens,
            self._rank, self._ranks, first,
        )  # fmt: skip

    def _placement(self, name: str):
        if name not in self._placements:
            self._placements[name] = placement.get(name, self._device)
        return self._placements[name]

    def _warm_up(self) -> None:
        """Compiles the kernel before anything is timed, for one layer and for all: one token that goes nowhere."""
        nowhere = torch.full((1,), -1, dtype=torch.int64, device=self._device)
        for layers in (self._layers[:1], self._layers):
            self._placement("kernel").scatter(new_staging(layers, 1), layers, nowhere)

    def wait_for_layer(self, name: str) -> None:
        """Waits for this layer of *every* load whose request may be in the batch, that is, which was reported: newer
        vLLM starts loads after the forward, so the step that reads a load is never the one that started it."""
        layer = self._number[name]
        for job in self._jobs.values():
            if not (job.overlap and job.reported) or job.orphaned:
                continue
            if not job.seen_by_forward:
                job.seen_by_forward = True
                job.pending_at_forward = job.layers - job.landed
            if not job.fault.waits:
                if job.landed <= layer:
                    job.scene.fired()
                continue
            job.blocking_waits += job.wait_for_layer(layer, LAYER_LIMIT_S)

    def preempted(self, requests: set[str]) -> None:
        """Their blocks go to others now: a loader that still writes must be done first."""
        for request in requests & self._jobs.keys():
            job = self._jobs[request]
            job.awaited.set()
            job.wait_for_layer(job.layers - 1, LAYER_LIMIT_S)

    def answer(self, answering: list[Answering]) -> None:
        """Before the forward of a step; only planted faults have anything to do here."""
        for one in answering:
            settings = one.settings.on_rank(self._rank)
            fault, scene = faults.get(settings.fault), self._scene(settings)
            fault.answered(self._layers, one.blocks, one.prompt, one.token, scene)

    def free(self, requests: set[str]) -> None:
        """A planted fault has kept their blocks for long enough."""
        self._freed |= requests

    # stores

    def begin_stores(self, stores: list[Store]) -> None:
        self._stores, self._staged = stores, {}
        self._failed = set()
        for store in stores:
            store.settings = store.settings.on_rank(self._rank)
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

    def _known(self, load: Load) -> list[dict[int, str]]:
        """Chunk number -> key, per prompt stored with these settings while a fault was planted, oldest first."""
        return [table for (_, settings), table in self._stored if settings == load.settings]

    def save_layer(self, name: str) -> None:
        """Copies this layer of the chunks that this step completes from the paged cache to the pool."""
        layer = self._number[name]
        late = [store for store in self._stores if not faults.get(store.settings.fault).stores_early]
        self._save(late, layer)
        for store in self._stores:
            if store.settings.fault:
                self._spoil(store, layer)

    def _spoil(self, store: Store, layer: int) -> None:
        fault, scene = faults.get(store.settings.fault), self._scene(store.settings)
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
            scene = self._scene(store.settings)
            slots = faults.get(store.settings.fault).gathered(slots, store.begun, store.generated, scene)
        return self._index.gather(layers, slots, new_staging(layers, slots.numel()))[0]

    def _object(self, store: Store, layer: int) -> torch.Tensor:
        """The layer's share [2, chunk, H, D] of what will be stored of the chunk, as a view: on the host and this
        process's alone until the step has ended, since its blocks may be another request's in the next one."""
        one, layers, chunkwise = self._layers[0], len(self._layers), store.settings.storage_format == "chunkwise"
        if store.key not in self._staged:  # a chunk's object is in Maru's order [2, L, chunk, H, D]
            lead = (2, layers) if chunkwise else (layers, 2)
            self._staged[store.key] = torch.empty(
                (*lead, self._config.chunk_tokens, one.heads, one.head_size), dtype=one.dtype
            )
        staged = self._staged[store.key]
        return staged[:, layer] if chunkwise else staged[layer]

    def _block_slots(self, blocks: list[int]) -> torch.Tensor:
        first = torch.tensor(blocks, dtype=torch.int64)[:, None] * self._block_size
        return (first + torch.arange(self._block_size)).flatten().to(self._device)

    def end_step(self) -> None:
        """Stores what this step completed, or has it stored, and journals the loads that ended."""
        for store in self._stores:
            if store.request in self._failed:  # what this step computed, it computed from what was not there
                continue
            if late := faults.get(store.settings.fault).stores_late:
                number = self._storing.setdefault(store.request, len(self._storing))
                self._late.append((number + late, store, self._staged[store.key]))
            else:
                self._hand_over(store, self._staged[store.key])
        self._stores, self._staged = [], {}
        self._store_late()
        for job in self._jobs.values():
            if job.seen_by_forward:
                job.awaited.set()
            if job.seen_by_forward and job.finished:
                self._end(job)

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
                self._scene(store.settings).fired()
            self._hand_over(store, read)

    def _put(self, store: Store, staged: torch.Tensor) -> None:
        group, layerwise = f"{store.key}@{self._rank}", store.settings.storage_format == "layerwise"
        kv = staged if layerwise else staged.transpose(0, 1)
        if faults.get(store.settings.fault).reads_when_stored:
            self._read_again(store, kv)
        faults.get(store.settings.fault).stored(store.key, kv, self._scene(store.settings))
        names = keys.object_names(group, store.settings.storage_format, len(self._layers))
        self._count({"stores_begun": 1}, store.settings)
        objects, evicted = list(zip(names, list(staged) if layerwise else [staged], strict=True)), []
        early = faults.get(store.settings.fault).announces_early
        if early:
            self._scene(store.settings).fired()
        why = self._pool.put(group, store.tag, objects, evicted=evicted, pause=self._take_time, early=early)
        if store.settings.fault:
            one = faults.Put(group, store.tag, objects, why, evicted, store.chunk == 0)
            why = faults.get(store.settings.fault).after_put(
                self._pool, one, self._last_put, self._scene(store.settings)
            )
            self._last_put = self._last_put if why else one
        if why:
            log.warning("Chunk %d of %s is not stored: %s.", store.chunk, store.request, WHY_NOT[why])
            self._count({"store_failures": 1, why: 1}, store.settings)
        else:
            self._count({"stored_chunks": 1, "stored_bytes": staged.nbytes}, store.settings)

    def _read_again(self, store: Store, kv: torch.Tensor) -> None:
        """A planted fault reads what lies in a chunk's blocks by now into ``kv`` [L, 2, chunk, H, D]."""
        self._take_time()
        right = kv.clone()
        for layer in range(len(self._layers)):
            kv[layer].copy_(self._kv(store, layer))
        if not torch.equal(words(kv), words(right)):
            self._scene(store.settings).fired()

    def _take_time(self) -> None:
        if self._storer and self._config.slow_s:
            self._closing.wait(self._config.slow_s)

    def _end(self, job: Job) -> None:
        """Counts and journals a load that has ended, once, and marks its blocks if it failed."""
        if job.journaled:
            return
        job.journaled = True
        load, one = job.load, self._layers[0]
        tokens = load.end - load.first
        size = tokens * job.layers * 2 * one.heads * one.head_size * one.dtype.itemsize
        blocks = load.blocks[load.first // self._block_size : -(-load.end // self._block_size)]
        if job.failed:
            self._invalid |= {*job.fault.invalid(blocks, job.scene)}
        elif load.settings.fault:
            before, self._loaded[load.settings] = self._loaded.get(load.settings, []), blocks
            job.fault.after_load(self._layers, blocks, before, job.scene)
        self._count(
            {"load_failures": 1} if job.failed else {"loads": 1, "loaded_bytes": size, "places": job.places},
            load.settings,
        )
        self._pool.evidence.journal_load(
            {
                "request": load.request, "cell": load.settings.cell, "tokens": tokens, "layers": job.layers,
                "storage_format": load.settings.storage_format, "placement": load.settings.placement,
                "load": load.settings.load, "overlap": job.overlap, "places": job.places, "failed": job.failed,
                "kept": load.first if job.failed else load.end,
                "pending_at_forward": job.pending_at_forward, "blocking_waits": job.blocking_waits,
                "read_s": round(job.read_s, 6),
                "place_s": round(job.place_s, 6) if one.device.type == "cpu" else None,
            }
        )  # fmt: skip

    def _count(self, values: dict[str, int], settings) -> None:
        self._pool.evidence.count(values, storage_format=settings.storage_format, placement=settings.placement)

    # reports

    def finished(self, finished_requests: set[str]) -> tuple[set[str], set[str]]:
        """(sent, received). A request that ended keeps its blocks until its overlapped load has: then it is "sent"."""
        sent, received = self._freed, set()
        self._freed = set()
        self._met_stores(finished_requests)
        for request, job in list(self._jobs.items()):
            if request in finished_requests:
                job.orphaned = True
                job.awaited.set()
            forgotten = job.orphaned and not job.fault.outlives_request
            if forgotten and not job.finished:
                job.scene.fired()
            if job.orphaned and job.overlap:
                if job.finished or forgotten:
                    sent.add(request)
            elif not job.reported and (job.released or forgotten):
                job.reported = True
                received.add(request)
            gone = request in sent or (job.reported and not job.overlap)
            if gone or job.failed:
                self._end(job)
            if gone:
                del self._jobs[request]
        return sent, received

    def _met_stores(self, finished_requests: set[str]) -> None:
        met = [request for request in finished_requests if self._storer and self._storer.busy_for(request)]
        if met:
            self._pool.evidence.count({"stores_after_end": len(met)})

    def invalid_blocks(self) -> set[int]:
        invalid, self._invalid = self._invalid, set()
        return invalid

    def close(self) -> None:
        self._closing.set()
        self._loader.close()
        if self._storer:
            self._storer.close()


def layer_number(name: str) -> tuple[int, str]:
    """Sorts vLLM's layer names in the model's order."""
    match = re.search(r"layers\.(\d+)", name)
    return (int(match[1]) if match else -1, name)
