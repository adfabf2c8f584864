"""Caches of every known form and physical order, as vLLM registers them."""

from __future__ import annotations

import torch

from e2e.inside.geometry import PagedLayer

#: name -> (form, sizes of the memory order, permutation from memory order to registered order)
RANK5 = {
    "kv_first-NHD": ("kv_first", "2BNHD"),
    "kv_first-HND": ("kv_first", "2BHND"),
    "blocks_first-NHD": ("blocks_first", "B2NHD"),
    "blocks_first-HND": ("blocks_first", "B2HND"),
}
PACKED = ("LBNHC", "LBHNC", "LHBNC", "BLNHC", "BLHNC", "BHLNC")
FORMS = (*RANK5, *(f"packed-{name}" for name in PACKED))
#: Orders whose rows in a page aren't evenly spaced: only stride-driven placements can do them.
UNEVEN = ("packed-LHBNC", "packed-BHLNC")


def make_layers(
    form: str, *, layers: int, blocks: int, block_size: int, heads: int, head_size: int, dtype=torch.float32
) -> tuple[torch.Tensor, list[PagedLayer]]:
    """One storage for all layers, zeroed, with guard elements at both ends, and the layers as views on it."""
    sizes = {"L": layers, "B": blocks, "N": block_size, "H": heads, "D": head_size, "C": 2 * head_size, "2": 2}
    kind, order = form.split("-")
    memory = order if kind == "packed" else "L" + RANK5[form][1]
    registered = {"packed": "LBHNC", "kv_first": "L2BNHD", "blocks_first": "LB2NHD"}[kind]
    count = 1
    for axis in memory:
        count *= sizes[axis]
    guard = 2 * block_size * heads * head_size
    storage = torch.zeros(count + 2 * guard, dtype=dtype)
    view = storage[guard : guard + count].view([sizes[axis] for axis in memory])
    view = view.permute([memory.index(axis) for axis in registered])
    if kind == "packed":
        return storage, [PagedLayer.packed(layer) for layer in view]
    return storage, [PagedLayer.split(layer, kv_first=kind == "kv_first") for layer in view]
