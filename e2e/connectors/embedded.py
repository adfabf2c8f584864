"""The embedded connector: Maru's shape and configuration keys, and one engine for every cell that can share it."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from pathlib import Path

from e2e.base.cell import Cell
from e2e.base.connector import Abilities, Adapter, ConnectorConfig, HitRule, ServiceSpec
from e2e.connectors.steps import aligned_step, chunk_tokens

#: The server that knows what lies where in the pool.
INDEX = "index-server"
_ROOT = str(Path(__file__).resolve().parents[2])


@dataclass(frozen=True)
class Embedded(Adapter):
    """``pool_bytes``: size of the pool that one engine start gets. ``pool_pace``: of the link to it, as in
    ``base.pace``, empty for none. ``evicts``: does a full one drop what was used least?"""

    pool_bytes: int = 2 << 30
    pool_pace: str = ""
    evicts: bool = False

    name = "embedded"
    engine_axes = frozenset(
        {"layout", "chunk_tokens", "block_size", "dtype", "concurrency", "tensor_parallel", "load_failure_policy"}
    )  # fmt: skip
    axes = engine_axes | {"storage_format", "overlap", "placement", "load", "release_after_layers"}
    description = "the rig's own connector with Maru's configuration keys (a double of Maru, not Maru)"

    @property
    def abilities(self) -> Abilities:
        return Abilities(
            counters=True, plants_faults=True, owns_store=True, pool_bytes=self.pool_bytes, shared_store=True,
            survives_restart=True, sized_pool=True, next_turn=True, slowed=True, lora=True, breakable=INDEX,
            double_of="Maru",
        )  # fmt: skip

    def config(self, cell: Cell, *, pool_dir: str, block_size: int) -> ConnectorConfig:
        """Defaults only: what a cell wants else goes with each request (``request_params``)."""
        return ConnectorConfig(
            kv_connector="EmbeddedConnector",
            module_path="e2e.inside.connector",
            extra={
                "maru_kv_chunk_tokens": chunk_tokens(cell),
                "maru_pool_size": self.pool_bytes,
                "maru_use_layerwise": False,
                "maru_async_load": False,
                "maru_overlap_load_with_compute": False,
                "maru_overlap_release_after_layers": 1,
                "embedded_pool_dir": pool_dir,
                "embedded_index": f"{{{INDEX}.address}}",
                "embedded_placement": "index",
                **({"embedded_evict": True} if self.evicts else {}),
                **({"embedded_pool_pace": self.pool_pace} if self.pool_pace else {}),
            },
            load_failure_policy=str(cell.get("load_failure_policy", "fail")),
            services=(self._index(pool_dir),),
        )

    def slowed(self, config: ConnectorConfig, seconds: float) -> ConnectorConfig:
        return replace(config, extra={**config.extra, "maru_async_store": True, "embedded_slow_s": seconds})

    def _index(self, pool_dir: str) -> ServiceSpec:
        return ServiceSpec(
            name=INDEX,
            argv=(
                sys.executable, "-m", "e2e.inside.index.server", "--size", str(self.pool_bytes),
                "--port", f"{{{INDEX}.port}}",
            ),
            ready=r"ready: the index of .* listens",
            tool=(sys.executable, "-m", "e2e.inside.index.tool", f"{{{INDEX}.address}}", f"{pool_dir}/region"),
            env={"PYTHONPATH": _ROOT},
            back_s=2.5,  # e2e.inside.index.client.REST_S and some
            optional=True,
        )  # fmt: skip

    def with_pool(self, size: int, *, evicts: bool) -> Embedded:
        return replace(self, pool_bytes=size, evicts=evicts)

    def request_params(self, cell: Cell) -> dict[str, object]:
        """The cell's id keeps cells of one engine from feeding each other: it is part of the key."""
        return {
            "storage_format": cell.settings["storage_format"],
            "load": cell.settings["load"],
            "overlap": cell.settings["overlap"] == "on",
            "placement": cell.settings["placement"],
            "release_after_layers": cell.get("release_after_layers", 1),
            "cell": cell.id,
            **({"fault": cell.settings["fault"]} if "fault" in cell.settings else {}),
        }

    def timed_params(self, cell: Cell) -> dict[str, object]:
        """Loads aren't held back until the forward is there."""
        return {**self.request_params(cell), "pace_s": 0}

    def hit_rule(self, cell: Cell, *, block_size: int) -> HitRule:
        """Whole chunks, one token held back (docs/maru.md#what-is-stored-and-served)."""
        return HitRule(granularity=chunk_tokens(cell), hold_back=1)

    def step(self, cell: Cell, *, block_size: int) -> int:
        return aligned_step(chunk_tokens(cell), block_size)
