"""The connector's half in the worker: it moves KV between the paged cache and the pool.

Call order that vLLM keeps in a step (docs/vllm.md#order-of-calls-in-a-step): preemptions, metadata bound,
``start_loads`` before the forward if the step has a sync load, else *after* it (0.29 and newer), per layer
``wait_for_layer``, then ``end_step``, ``finished``, ``invalid_blocks``. So nothing here assumes that
loads start first.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import torch

from e2e.inside import faults, placement
from e2e.inside.config import EmbeddedConfig, RequestSettings
from e2e.inside.geometry import PagedLayer
from e2e.inside.job import Job
from e2e.inside.loader import Loader
from e2e.inside.placement.base import new_staging
from e2e.inside.placement.index import Index
from e2e.inside.pool import Pool
from e2e.inside.rank import Rank
from e2e.inside.scheduler_side import Answering, Load, Store
from e2e.inside.stores import Stores

#: Longest wait for one layer inside a forward, in seconds; past it the forward must not go on.
LAYER_LIMIT_S = 60.0


class WorkerSide:
    def __init__(
        self, config: EmbeddedConfig, pool: Pool, layers: dict[str, PagedLayer], *, block_size: int, rank: int,
        ranks: int = 1,
    ) -> None:  # fmt: skip
        """``layers``: vLLM layer name -> its paged tensor, in any order; index is the number in ``layers.<n>``."""
        names = sorted(layers, key=layer_number)
        self._number = {name: i for i, name in enumerate(names)}
        self._rank = Rank(
            config=config, pool=pool, layers=[layers[name] for name in names], block_size=block_size, number=rank,
            ranks=ranks,
        )  # fmt: skip
        self._layers, self._device, on_gpu = self._rank.layers, self._rank.device, self._rank.device.type == "cuda"
        # on a GPU, looking for negative slots would make it wait for the host, and there are none
        self._placements = {"index": Index(dense=on_gpu)}
        self._around_placement: Callable[[], AbstractContextManager] = nullcontext
        if on_gpu:
            self._warm_up()
        self._loader = Loader(
            pool, self._layers, rank=rank, chunk_tokens=config.chunk_tokens, pace_s=config.pace_s,
            slow_s=config.slow_s, place=self._place,
        )  # fmt: skip
        self._stores = Stores(self._rank, self._placement("kernel" if on_gpu else "index"))
        self._jobs: dict[str, Job] = {}
        self._batch: set[str] = set()
        self._void = False
        self._invalid: set[int] = set()
        # while a fault is planted
        self._freed: set[str] = set()
        self._placed: dict[str, list[int]] = {}
        self._loaded: dict[RequestSettings, list[int]] = {}

    # loads

    def start_loads(self, loads: list[Load]) -> None:
        for load in loads:
            load.settings = load.settings.on_rank(self._rank.number)
        tables = self._tables(loads)
        for load, table in zip(loads, tables, strict=True):
            fault, scene = faults.get(load.settings.fault), self._rank.scene(load.settings, first=load.first)
            load.keys = fault.keys(load.keys, self._stores.known(load), scene)
            slots = self._rank.slots(table, range(load.first, load.end))
            job = Job(load, slots, len(self._layers), load.settings.overlap, scene, fault)
            self._rank.count({"loads_begun": 1}, load.settings)
            if load.settings.load == "sync":
                self._loader.load_now(job)
                self._end(job)
                self._void |= job.failed
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
            fault, scene = faults.get(settings.fault), self._rank.scene(settings)
            found = fault.into([tables[number] for number in at], former, scene)
            for number, table in zip(at, found, strict=True):
                tables[number] = table
                self._placed[loads[number].request] = loads[number].blocks
        return tables

    def _place(self, job: Job, staged: torch.Tensor, group: range, slots: torch.Tensor) -> int:
        how, layers = self._placement(job.load.settings.placement), self._layers[group.start : group.stop]
        with self._around_placement():
            return job.fault.place(faults.Placing(how, staged, layers, group, slots), job.scene)

    def around_placement(self, around: Callable[[], AbstractContextManager] | None) -> None:
        self._around_placement = around or nullcontext

    def _placement(self, name: str):
        if name not in self._placements:
            self._placements[name] = placement.get(name, self._device)
        return self._placements[name]

    def _warm_up(self) -> None:
        """Compiles the kernel before anything is timed, for one layer and for all: a chunk that goes nowhere, and comes
        from there."""
        chunk, kernel = self._rank.config.chunk_tokens, self._placement("kernel")
        nowhere = torch.full((chunk,), -1, dtype=torch.int64, device=self._device)
        for layers in (self._layers[:1], self._layers):
            kernel.scatter(new_staging(layers, chunk), layers, nowhere)
            kernel.gather(layers, nowhere, new_staging(layers, chunk))

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
            settings = one.settings.on_rank(self._rank.number)
            fault, scene = faults.get(settings.fault), self._rank.scene(settings)
            fault.answered(self._layers, one.blocks, one.prompt, one.token, scene)

    def free(self, requests: set[str]) -> None:
        """A planted fault has kept their blocks for long enough."""
        self._freed |= requests

    # stores

    def begin_step(self, stores: list[Store], batch: set[str]) -> None:
        """``batch``: requests of this step that something is or was loaded for while forwards run."""
        self._stores.begin(stores)
        self._batch, self._void = batch, False

    def end_step(self) -> None:
        """Stores what this step completed, and journals the loads that ended."""
        for job in self._jobs.values():
            if job.seen_by_forward:
                job.awaited.set()
            if job.seen_by_forward and job.finished:
                self._end(job)
            self._void |= self._failed_late(job)
        # what a step computes beside a load that failed may be computed from what was not there
        self._stores.end_step(void=self._void)

    def _failed_late(self, job: Job) -> bool:
        """vLLM takes back what requests that run have computed over invalid blocks, and looks at none that waits; so it
        is told until the request is in the step."""
        if not job.failed or not job.late or job.told or job.orphaned:
            return False
        self._invalid |= {*self._blocks(job)}
        job.told = job.load.request in self._batch
        return True

    def _blocks(self, job: Job) -> list[int]:
        load, size = job.load, self._rank.block_size
        return load.blocks[load.first // size : -(-load.end // size)]

    def _end(self, job: Job) -> None:
        """Counts and journals a load that has ended, once, and marks its blocks if it failed."""
        if job.journaled:
            return
        job.journaled = True
        load, one = job.load, self._layers[0]
        tokens = load.end - load.first
        size = tokens * job.layers * 2 * one.heads * one.head_size * one.dtype.itemsize
        blocks = self._blocks(job)
        if job.failed and not job.late:
            self._invalid |= {*job.fault.invalid(blocks, job.scene)}
        elif load.settings.fault and not job.failed:
            before, self._loaded[load.settings] = self._loaded.get(load.settings, []), blocks
            job.fault.after_load(self._layers, blocks, before, job.scene)
        self._rank.count(
            {"load_failures": 1} if job.failed else {"loads": 1, "loaded_bytes": size, "places": job.places},
            load.settings,
        )
        self._rank.pool.evidence.journal_load(
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

    def stores_under_way(self, request: str) -> bool:
        return self._stores.under_way(request)

    def settle(self, limit_s: float) -> None:
        self._stores.settle(limit_s)

    # reports

    def finished(self, finished_requests: set[str]) -> tuple[set[str], set[str]]:
        """(sent, received). A request that ended keeps its blocks until its overlapped load has: then it is "sent"."""
        sent, received = self._freed, set()
        self._freed = set()
        self._stores.met(finished_requests)
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

    def invalid_blocks(self) -> set[int]:
        invalid, self._invalid = self._invalid, set()
        return invalid

    def close(self) -> None:
        self._loader.close()
        self._stores.close()


def layer_number(name: str) -> tuple[int, str]:
    """Sorts vLLM's layer names in the model's order."""
    match = re.search(r"layers\.(\d+)", name)
    return (int(match[1]) if match else -1, name)
