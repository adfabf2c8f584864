"""vLLM's DecodeBenchConnector, a negative control: it claims every token but the last and fills in noise.

It does so for cold requests too: only the baseline engine shows that the answers are wrong
(docs/vllm.md#bundled-connectors).
"""

from __future__ import annotations

from dataclasses import dataclass

from e2e.base.cell import Cell
from e2e.base.connector import Adapter, ConnectorConfig, HitRule
from e2e.connectors.steps import aligned_step


@dataclass(frozen=True)
class DecodeBench(Adapter):
    """``fill_mean``, ``fill_std``: the noise, as the connector's own options."""

    fill_mean: float = 0.015
    fill_std: float = 0.0

    name = "decode-bench"
    axes = frozenset({"layout", "block_size", "dtype", "concurrency"})
    engine_axes = axes
    description = "vLLM's DecodeBenchConnector: serves garbage and counts hits; must be found corrupt"

    def config(self, cell: Cell, *, pool_dir: str, block_size: int) -> ConnectorConfig:
        return ConnectorConfig(
            kv_connector="DecodeBenchConnector",
            extra={"fill_mean": self.fill_mean, "fill_std": self.fill_std},
        )

    def hit_rule(self, cell: Cell, *, block_size: int) -> HitRule:
        return HitRule(granularity=1, hold_back=1)

    def step(self, cell: Cell, *, block_size: int) -> int:
        return aligned_step(1, block_size)
