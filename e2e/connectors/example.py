"""vLLM's ExampleConnector, a positive control: a prompt's whole blocks, one file a layer, found by the whole prompt.

It stores the first prefill step only and kills the engine when such a prompt is loaded
(docs/vllm.md#bundled-connectors), so a prompt must be prefilled in one step and cold run and rerun can't be aligned.
"""

from __future__ import annotations

from dataclasses import dataclass

from e2e.base.cell import Cell
from e2e.base.connector import Abilities, Adapter, ConnectorConfig, HitRule

#: One prefill step; longer prompts would kill the engine.
_STEP = 8192


@dataclass(frozen=True)
class Example(Adapter):
    name = "example"
    axes = frozenset({"layout", "block_size", "dtype", "concurrency"})
    engine_axes = axes
    description = "vLLM's ExampleConnector: a correct control; never finds prompts of k blocks + 1 token again"
    #: files in a folder, named by a hash of the tokens alone
    abilities = Abilities(longest_prompt=_STEP, shared_store=True, survives_restart=True, salted=False, prefixes=False)

    def config(self, cell: Cell, *, pool_dir: str, block_size: int) -> ConnectorConfig:
        return ConnectorConfig(
            kv_connector="ExampleConnector",
            extra={"shared_storage_path": pool_dir},
            engine_args=("--max-num-batched-tokens", str(_STEP)),
        )

    def hit_rule(self, cell: Cell, *, block_size: int) -> HitRule:
        """It looks up (n - 2) // block blocks but stores (n - 1) // block; where they differ it finds nothing, though
        this rule predicts a hit: such a cell is inconclusive, since the connector serves nothing."""
        return HitRule(granularity=block_size, hold_back=2)

    def step(self, cell: Cell, *, block_size: int) -> None:
        return None
