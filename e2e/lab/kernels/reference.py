"""The oracle of all other implementations: one token after the other, by logical shape, nothing clever."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch

from e2e.inside.geometry import PagedLayer
from e2e.inside.placement.base import check, words


class Reference:
    name = "reference"

    def scatter(self, staged: torch.Tensor, layers: Sequence[PagedLayer], slots: torch.Tensor) -> int:
        for there, here in _tokens(staged, layers, slots):
            there.copy_(here)
        return len(layers)

    def gather(self, layers: Sequence[PagedLayer], slots: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
        for there, here in _tokens(out, layers, slots):
            here.copy_(there)
        return out


def _tokens(
    staged: torch.Tensor, layers: Sequence[PagedLayer], slots: torch.Tensor
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Each token's K and each token's V, [H, D]: in the cache and in the staging."""
    check(staged, layers, slots)
    for row, layer in zip(words(staged), layers, strict=True):
        cache = words(layer.registered)
        for token, slot in enumerate(slots.tolist()):
            if slot >= 0:
                for kv in (0, 1):
                    yield _page(cache, layer, kv, *_split(slot, layer)), row[kv, token]


def _split(slot: int, layer: PagedLayer) -> tuple[int, int]:
    block, offset = divmod(slot, layer.block_size)
    if block >= layer.num_blocks:
        raise ValueError(f"slot {slot} lies past the last of {layer.num_blocks} blocks of {layer.block_size} tokens.")
    return block, offset


def _page(cache: torch.Tensor, layer: PagedLayer, kv: int, block: int, offset: int) -> torch.Tensor:
    """[H, D] view of one token, spelled out per registered form so that it shares no view with what it judges."""
    size = layer.head_size
    if layer.form == "packed":
        return cache[block, :, offset, kv * size : (kv + 1) * size]
    if layer.form == "blocks_first":
        return cache[block, kv, offset]
    return cache[kv, block, offset]
