"""The embedded connector: Maru's shape and keys over a pool of our own. A test double, never a mock of the engine.

``--kv-transfer-config '{"kv_connector": "EmbeddedConnector",
"kv_connector_module_path": "e2e.inside.connector", ...}'``
This class only translates between vLLM's hooks (0.14 to 0.33) and the two halves; see scheduler_side and worker_side.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorBase_V1,
    KVConnectorMetadata,
    KVConnectorRole,
)

from e2e.inside import keys, runtime
from e2e.inside.config import EmbeddedConfig, parse
from e2e.inside.evidence import OF_ALL, Evidence
from e2e.inside.gpu_memory import OnGpu
from e2e.inside.index.client import Client, IndexGone, own_index
from e2e.inside.memory import Flushed, Mapped
from e2e.inside.pace import Paced
from e2e.inside.pool import Pool
from e2e.inside.region import PoolError, region
from e2e.inside.scheduler_side import Answering, Load, SchedulerSide, Store
from e2e.inside.worker_side import WorkerSide

#: Longest wait for stores that go on beside the compute when the rig asks what happened. Seconds.
SETTLE_S = 10.0
log = logging.getLogger("vllm.maru_e2e.embedded")


@dataclass
class StepWork(KVConnectorMetadata):
    loads: list[Load] = field(default_factory=list)
    stores: list[Store] = field(default_factory=list)
    preempted: set[str] = field(default_factory=set)
    answering: list[Answering] = field(default_factory=list)
    freed: set[str] = field(default_factory=set)
    overlapped: set[str] = field(default_factory=set)


class EmbeddedConnector(KVConnectorBase_V1):
    def __init__(self, vllm_config, role: KVConnectorRole, kv_cache_config=None) -> None:
        super().__init__(vllm_config=vllm_config, role=role, kv_cache_config=kv_cache_config)
        self._block_size = vllm_config.cache_config.block_size
        extra = vllm_config.kv_transfer_config.kv_connector_extra_config
        on_gpu = vllm_config.device_config.device_type == "cuda"
        self._config = parse(extra, block_size=self._block_size, on_gpu=on_gpu)
        rank = vllm_config.parallel_config.rank if role == KVConnectorRole.WORKER else OF_ALL
        engine = vllm_config.kv_transfer_config.engine_id or "engine"
        self._pool = _pool(self._config, engine=engine, rank=rank, on_gpu=on_gpu and rank != OF_ALL)
        self._scheduler: SchedulerSide | None = None
        self._worker: WorkerSide | None = None
        if self._config.inert:
            log.info("Keys without effect in the embedded connector: %s", ", ".join(self._config.inert))
        if role == KVConnectorRole.SCHEDULER:
            self._scheduler = SchedulerSide(
                self._config, self._pool, space=_space(vllm_config), block_size=self._block_size,
                ranks=vllm_config.parallel_config.world_size,
            )  # fmt: skip

    @property
    def requires_kv_delivery(self) -> bool:
        return False  # a cache: a dropped store is a later miss, so a preempted request needs no recompute

    # worker

    def register_kv_caches(self, kv_caches: dict[str, torch.Tensor]) -> None:
        layers = runtime.resolve_layers(self._vllm_config, kv_caches, block_size=self._block_size)
        ranks = self._vllm_config.parallel_config.world_size
        self._worker = WorkerSide(
            self._config, self._pool, layers, block_size=self._block_size,
            rank=self._vllm_config.parallel_config.rank % ranks, ranks=ranks,
        )  # fmt: skip

    def handle_preemptions(self, preempted) -> None:
        """Up to 0.18 a set of request ids, since then the step's metadata."""
        self._worker.preempted(preempted if isinstance(preempted, set) else preempted.preempted)

    def bind_connector_metadata(self, connector_metadata: StepWork) -> None:
        super().bind_connector_metadata(connector_metadata)
        self._worker.begin_step(connector_metadata.stores, connector_metadata.overlapped)
        self._worker.answer(connector_metadata.answering)
        self._worker.free(connector_metadata.freed)

    def start_load_kv(self, forward_context, **kwargs: Any) -> None:
        self._worker.start_loads(self._get_connector_metadata().loads)

    def wait_for_layer_load(self, layer_name: str) -> None:
        self._worker.wait_for_layer(layer_name)

    def save_kv_layer(self, layer_name: str, kv_layer: torch.Tensor, attn_metadata, **kwargs: Any) -> None:
        pass  # all layers at once, when the last one is there: ``wait_for_save``

    def wait_for_save(self) -> None:
        self._worker.end_step()

    def get_finished(self, finished_req_ids: set[str]) -> tuple[set[str] | None, set[str] | None]:
        sent, received = self._worker.finished(finished_req_ids)
        return sent or None, received or None

    def get_block_ids_with_load_errors(self) -> set[int]:
        return self._worker.invalid_blocks()

    def shutdown(self) -> None:
        if self._worker:
            self._worker.close()

    # evidence, read by the rig through the worker extension

    def rig_about(self) -> dict[str, object]:
        """What it runs with, beside what vLLM knows."""
        return {"pool_pace": str(self._config.link)} if self._config.link else {}

    def rig_evidence(self, after: int) -> dict[str, object]:
        if self._worker:  # so that whoever asks sees whole answers, and what comes next finds what these have stored
            self._worker.settle(SETTLE_S)
        totals = self._pool.evidence.counters()
        fired = {name[len("fired:") :]: n for name, n in totals.items() if re.fullmatch(r"fired:[^/]+", name)}
        counters = {name: value for name, value in totals.items() if not name.startswith("fired:")}
        counters |= self._pool.memory.counters() if self._config.link else {}
        return {"counters": counters, "loads": self._pool.evidence.loads(after), "fired": fired}

    def rig_around_placement(self, around: Callable[[], AbstractContextManager] | None) -> None:
        """From now on each placement of a load runs within ``around()``; None: no more."""
        if self._worker:
            self._worker.around_placement(around)

    # scheduler

    def get_num_new_matched_tokens(self, request, num_computed_tokens: int) -> tuple[int | None, bool]:
        return self._scheduler.matched(request, num_computed_tokens)

    def update_state_after_alloc(self, request, blocks, num_external_tokens: int) -> None:
        self._scheduler.allocated(request, blocks.get_block_ids()[0], num_external_tokens)

    def build_connector_meta(self, scheduler_output) -> StepWork:
        loads, stores = self._scheduler.step(scheduler_output)
        preempted = set(getattr(scheduler_output, "preempted_req_ids", None) or ())
        return StepWork(
            loads, stores, preempted, self._scheduler.answering, self._scheduler.let_go(), self._scheduler.overlapped
        )

    def update_connector_output(self, connector_output) -> None:
        early = self._scheduler.received(connector_output.finished_recving)
        if early:
            connector_output.finished_recving = set(connector_output.finished_recving) - early
        self._scheduler.sent(connector_output.finished_sending)

    def request_finished(self, request, block_ids: list[int]) -> tuple[bool, dict[str, Any] | None]:
        aborted = getattr(request.status, "name", "") == "FINISHED_ABORTED"
        return self._scheduler.finished(request.request_id, aborted=aborted), None

    def reset_cache(self) -> bool:
        return self._pool.clear()


def _pool(config: EmbeddedConfig, *, engine: str, rank: int, on_gpu: bool) -> Pool:
    """``engine``: the same in every process of this engine, and in no other one. ``on_gpu``: buffers are there."""
    folder = Path(config.pool_dir)
    folder.mkdir(parents=True, exist_ok=True)
    try:
        address = config.index or own_index(folder, config.pool_size)
    except IndexGone as error:
        raise PoolError(f"No pool without its index: {error}; see {folder / 'index.log'}.") from None
    index = Client(address, name=engine, limit_s=config.index_limit_s)
    evidence = Evidence(config.pool_dir, engine, rank)
    mapped = region(config.pool_path, config.pool_size, offset=config.offset, numa=config.numa)
    memory = Flushed(mapped) if config.flush else Mapped(mapped)
    memory = OnGpu(memory) if on_gpu else memory
    memory = Paced(memory, config.link) if config.link else memory
    return Pool(memory, config.pool_size, index=index, evidence=evidence, evict=config.evict)


def _space(vllm_config) -> dict[str, object]:
    """What two engines must have in common to share KV. Not the layout: objects are in logical order."""
    model, parallel = vllm_config.model_config, vllm_config.parallel_config
    return {
        "model": model.model,
        "revision": getattr(model, "revision", None),
        "commit": getattr(getattr(model, "hf_config", None), "_commit_hash", None),
        "weights": keys.weights(model.model),
        "load_format": str(getattr(vllm_config.load_config, "load_format", None)),
        "quantization": str(getattr(model, "quantization", None)),
        "overrides": str(getattr(model, "hf_overrides", None)),
        "dtype": str(model.dtype),
        "kv_dtype": str(vllm_config.cache_config.cache_dtype),
        "layers": model.get_num_layers(parallel),
        "heads": model.get_num_kv_heads(parallel),
        "head_size": model.get_head_size(),
        "tensor_parallel": parallel.tensor_parallel_size,
        "pipeline_parallel": parallel.pipeline_parallel_size,
    }
