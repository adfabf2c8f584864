"""What both halves of a worker's side share: its part of the paged cache, the pool, and what is counted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import torch

from e2e.inside import faults
from e2e.inside.config import EmbeddedConfig, RequestSettings
from e2e.inside.geometry import PagedLayer
from e2e.inside.pool import Pool


@dataclass(frozen=True, kw_only=True)
class Rank:
    """``layers``: in the model's order. ``number``: of this rank, among ``ranks``."""

    config: EmbeddedConfig
    pool: Pool
    layers: list[PagedLayer]
    block_size: int
    number: int
    ranks: int

    @property
    def device(self) -> torch.device:
        return self.layers[0].device

    def slots(self, blocks: Sequence[int], tokens: range) -> torch.Tensor:
        """int64 [T] on the cache's device: where ``tokens`` of whoever has these blocks stand. A GPU gets them behind
        what it was given before, which nobody waits for."""
        at = torch.arange(tokens.start, tokens.stop, dtype=torch.int64)
        slots = torch.tensor(blocks, dtype=torch.int64)[at // self.block_size] * self.block_size + at % self.block_size
        return slots.pin_memory().to(self.device, non_blocking=True) if self.device.type == "cuda" else slots

    def scene(self, settings: RequestSettings, *, first: int = 0) -> faults.Scene:
        fired = partial(self.count, {f"fired:{settings.fault}": 1}, settings)
        heads, tokens = (self.layers[0].logical.stride(axis) for axis in (3, 2))
        return faults.Scene(
            len(self.layers), self.block_size, self.config.chunk_tokens, fired, settings.placement, heads > tokens,
            self.number, self.ranks, first,
        )  # fmt: skip

    def count(self, values: dict[str, int], settings: RequestSettings) -> None:
        self.pool.evidence.count(values, storage_format=settings.storage_format, placement=settings.placement)
