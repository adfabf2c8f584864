"""What an adapter says about one cell; the stack turns it into an engine, replay into requests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from e2e.base.cell import Cell


@dataclass(frozen=True)
class ConnectorConfig:
    """``--kv-transfer-config`` and what has to stand around it. ``env`` values are added to the engine's environment;
    PYTHONPATH is put in front of what is there. ``engine_args`` are vLLM flags, one list item a word."""

    kv_connector: str
    module_path: str | None = None
    extra: Mapping[str, object] = field(default_factory=dict)
    engine_args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    load_failure_policy: str = "fail"

    def as_kv_transfer_config(self) -> dict[str, object]:
        config: dict[str, object] = {
            "kv_connector": self.kv_connector,
            "kv_role": "kv_both",
            "kv_connector_extra_config": dict(self.extra),
            "kv_load_failure_policy": self.load_failure_policy,
        }
        if self.module_path:
            config["kv_connector_module_path"] = self.module_path
        return config


@dataclass(frozen=True)
class HitRule:
    """How many tokens of a prompt the connector serves: whole units of ``granularity`` tokens, never the last
    ``hold_back`` ones, nothing under one unit. Source: facts of each connector, see its adapter."""

    granularity: int
    hold_back: int = 1

    def external(self, tokens: int, local: int = 0) -> int:
        """Tokens served by the connector beyond ``local`` tokens that vLLM's own prefix cache serves."""
        whole = max(tokens - self.hold_back, 0) // self.granularity * self.granularity
        return max(whole - local, 0)


class Adapter(Protocol):
    """One connector. A new one is one file in connectors/ and one line in its table."""

    name: str
    #: axes that mean something for it; the grid collapses all others
    axes: frozenset[str]
    #: axes that need an engine of their own; a subset of ``axes``. The rest is chosen per request.
    engine_axes: frozenset[str]
    #: does it have counters of its own, read through the worker extension or otherwise
    has_counters: bool
    #: the most tokens of a prompt that it can take, or None
    longest_prompt: int | None
    #: one line for people
    description: str

    def check(self, cell: Cell) -> str | None:
        """Why this cell can't run with this connector, as one sentence, or None."""

    def config(self, cell: Cell, *, pool_dir: str, block_size: int) -> ConnectorConfig:
        """The engine part of a cell; equal for cells that share an engine key. ``pool_dir``: an empty folder of
        this engine start, for whatever the connector stores."""

    def request_params(self, cell: Cell) -> dict[str, object] | None:
        """``kv_transfer_params`` of a request, or None."""

    def hit_rule(self, cell: Cell, *, block_size: int) -> HitRule: ...

    def step(self, cell: Cell, *, block_size: int) -> int | None:
        """The prefill step S (--max-num-batched-tokens) that aligns cold run and rerun, or None when this connector
        can't be aligned (it stores the first step only, say) and the split-matched oracle must judge."""
