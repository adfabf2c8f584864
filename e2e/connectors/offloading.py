"""vLLM's OffloadingConnector, an asynchronous control: KV in host memory, whole blocks, stored beside the compute."""

from __future__ import annotations

import sys
from dataclasses import dataclass

from e2e.base.cell import Cell
from e2e.base.connector import Abilities, Adapter, ConnectorConfig, HitRule
from e2e.connectors.installed import installed
from e2e.connectors.steps import aligned_step

#: Since then only prompts can be stored, not what was generated: then hits are those of the prompt alone.
_PROMPT_ONLY_SINCE = (0, 23)


@dataclass(frozen=True)
class Offloading(Adapter):
    """``pool_bytes``: host memory that one engine start offloads to. ``python``: the engine's."""

    pool_bytes: int = 4 << 30
    python: str = sys.executable

    name = "offloading"
    axes = frozenset({"layout", "block_size", "dtype", "concurrency"})
    engine_axes = axes
    description = "vLLM's OffloadingConnector: an asynchronous control, on CUDA only"

    @property
    def abilities(self) -> Abilities:
        return Abilities(pool_bytes=self.pool_bytes)

    def missing(self, *, device: str) -> str | None:
        if device == "cuda":
            return None
        return "it runs on CUDA only; use a machine with an NVIDIA GPU, or --connector embedded or example here."

    def config(self, cell: Cell, *, pool_dir: str, block_size: int) -> ConnectorConfig:
        extra: dict[str, object] = {"cpu_bytes_to_use": self.pool_bytes}
        if (installed(self.python).vllm_version or _PROMPT_ONLY_SINCE) >= _PROMPT_ONLY_SINCE:
            extra["offload_prompt_only"] = True
        return ConnectorConfig(kv_connector="OffloadingConnector", extra=extra)

    def hit_rule(self, cell: Cell, *, block_size: int) -> HitRule:
        """Whole blocks, none held back: of 1552 tokens all 1552 came from it (vLLM 0.23.0 on an H200)."""
        return HitRule(granularity=block_size, hold_back=0)

    def step(self, cell: Cell, *, block_size: int) -> int:
        return aligned_step(block_size, block_size)
