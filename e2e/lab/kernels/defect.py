"""The swapped-axes defect, shown: a kernel that is handed the registered shape instead of the physical order.

One layer, 64 blocks of 16 tokens, 8 heads of 16 float32, 16 tokens: the geometry of the first report
(docs/history.md#the-first-report). Under HND elements go to wrong addresses, under NHD none does.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from e2e.inside.placement.base import Placement, words
from e2e.lab.kernels.caches import RANK5, Geometry, make
from e2e.lab.kernels.reference import Reference

GEOMETRY = Geometry(layers=1, blocks=64, block_size=16, heads=8, head_size=16)
SLOT_CHOICES = {
    "0 to 15": tuple(range(16)),
    "block 3": tuple(range(48, 64)),
    "two half blocks": (*range(8), *range(16, 24)),
    "every 64th": tuple(range(0, 1024, 64)),
    "16 at random": tuple(torch.randperm(1024, generator=torch.Generator().manual_seed(0))[:16].tolist()),
}


def table(placements: dict[str, Callable[[], Placement]], *, device: str = "cpu") -> list[dict[str, object]]:
    """Mismatching elements per placement (a factory, since views are given to constructors), format and slot choice."""
    rows = []
    for name, factory in placements.items():
        for form in RANK5:
            for choice, slots in SLOT_CHOICES.items():
                found = mismatches(factory(), form, slots, device=device)
                rows.append({"placement": name, "format": form, "slots": choice, "mismatches": found})
    return rows


def mismatches(placement: Placement, form: str, slots: tuple[int, ...], *, device: str = "cpu") -> int:
    """Elements of the whole cache that differ from the reference's. Storage and staging have room at their ends, since
    a kernel that reads sizes in the wrong order runs past both."""
    generator = torch.Generator().manual_seed(1)
    g = GEOMETRY
    row = 2 * len(slots) * g.heads * g.head_size
    buffer = torch.randn(2 * row, generator=generator)
    where = torch.tensor(slots)
    storages = []
    for target, writer in (("cpu", Reference()), (device, placement)):
        storage, layers = make(form, g, device=target, guard=2 * g.layer_elements)
        staged = buffer.to(target)[:row].view(1, 2, len(slots), g.heads, g.head_size)
        writer.scatter(staged, layers, where.to(target))
        own = layers[0].page_span
        storages.append(words(storage[own[0] : own[1]].cpu()))
    return int((storages[0] != storages[1]).sum())
