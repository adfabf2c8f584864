"""Synthetic paged caches of every known form and physical order, with the strides that vLLM gives them."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch

from e2e.inside.geometry import PagedLayer

_RANK5 = {"kv_first-NHD": "2BNHD", "kv_first-HND": "2BHND", "blocks_first-NHD": "B2NHD", "blocks_first-HND": "B2HND"}
#: The four formats of vLLM up to 0.25; of the original report.
RANK5 = tuple(_RANK5)
PACKED = tuple(f"packed-{order}" for order in ("LBNHC", "LBHNC", "LHBNC", "BLNHC", "BLHNC", "BHLNC"))
FORMS = RANK5 + PACKED
#: Orders whose rows in a page aren't evenly spaced, so that only stride-driven placements can do them.
UNEVEN = ("packed-LHBNC", "packed-BHLNC")


@dataclass(frozen=True)
class Geometry:
    """``block_size`` tokens per block, ``heads`` KV heads of ``head_size`` elements."""

    layers: int
    blocks: int
    block_size: int
    heads: int
    head_size: int
    dtype: torch.dtype = torch.float32

    @property
    def layer_elements(self) -> int:
        return 2 * self.blocks * self.block_size * self.heads * self.head_size

    @property
    def slots(self) -> int:
        return self.blocks * self.block_size

    def refuse_if_blind(self) -> None:
        """With as many heads as tokens per block, or one of either, swapping the two moves nothing."""
        if self.block_size == self.heads or 1 in (self.block_size, self.heads):
            raise ValueError(
                f"block size {self.block_size} with {self.heads} heads can't show a swap of the two; "
                "take two different numbers above 1."
            )

    def with_dtype(self, dtype: torch.dtype) -> Geometry:
        return replace(self, dtype=dtype)


def make(
    form: str, geometry: Geometry, *, device: torch.device | str = "cpu", guard: int = 256
) -> tuple[torch.Tensor, list[PagedLayer]]:
    """One zeroed storage for all layers with ``guard`` elements at both ends, and the layers as views on it."""
    g = geometry
    sizes = {
        "L": g.layers, "B": g.blocks, "N": g.block_size, "H": g.heads, "D": g.head_size, "C": 2 * g.head_size, "2": 2
    }  # fmt: skip
    kind, order = form.split("-")
    memory = order if kind == "packed" else "L" + _RANK5[form]
    registered = {"packed": "LBHNC", "kv_first": "L2BNHD", "blocks_first": "LB2NHD"}[kind]
    count = math.prod(sizes[axis] for axis in memory)
    storage = torch.zeros(count + 2 * guard, dtype=g.dtype, device=device)
    view = storage[guard : guard + count].view([sizes[axis] for axis in memory])
    view = view.permute([memory.index(axis) for axis in registered])
    if kind == "packed":
        return storage, [PagedLayer.packed(layer) for layer in view]
    return storage, [PagedLayer.split(layer, kv_first=kind == "kv_first") for layer in view]


#: How a staging buffer may lie in memory, as a permutation of (L, 2, T, H, D) into its memory order.
STAGINGS = {
    "layer-major": (0, 1, 2, 3, 4),
    "kv-major": (1, 0, 2, 3, 4),
    "token-major": (0, 2, 1, 3, 4),
    "head-packed": (0, 2, 3, 1, 4),
}


def stage(staged: torch.Tensor, order: str) -> torch.Tensor:
    """The same [L,2,T,H,D] values in a buffer of another memory order, behind the same shape."""
    to_memory = STAGINGS[order]
    back = [to_memory.index(axis) for axis in range(5)]
    return staged.permute(to_memory).contiguous().permute(back)
