"""The original report: one layer, 64 blocks of 16 tokens, 8 heads of 16 float32, 16 tokens, kernel against reference.

Of 262,144 elements it found 0 wrong under NHD, and 9,536 (K/V first) and 7,168 (blocks first) under HND, when the
kernel was handed the registered shape. The slots were not given. Here: the table for any placement that can be handed
a view, and a search for slots that lead to those two numbers.

A slot choice has a range of mismatches. Two things are open: who writes last where several tokens hit one address, and
what lies behind the staging, which is read past its end (zeros there would not show in a zeroed cache).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch

from e2e.inside.placement.base import Placement, words
from e2e.inside.placement.caches import RANK5, Geometry, make
from e2e.inside.placement.reference import Reference

GEOMETRY = Geometry(layers=1, blocks=64, block_size=16, heads=8, head_size=16)
TOKENS = 16
REPORTED = {"kv_first-HND": 9536, "blocks_first-HND": 7168}
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


@dataclass(frozen=True)
class Candidate:
    """``low`` and ``high``: the range of mismatching elements per format; ``last``: when later tokens win."""

    family: str
    slots: tuple[int, ...]
    low: dict[str, int]
    high: dict[str, int]
    last: dict[str, int]

    @property
    def gives(self) -> list[str]:
        return [form for form, count in REPORTED.items() if self.low[form] <= count <= self.high[form]]


def search(*, seeds: int = 1500, keep: int = 5) -> dict[str, object]:
    """Slot choices whose range holds both reported numbers, by family; and, for each number alone, how many do."""
    tried, both, alone, exact = 0, [], dict.fromkeys(REPORTED, 0), dict.fromkeys(REPORTED, 0)
    for family, slots in _candidates(seeds):
        candidate = bounds(family, slots)
        tried += 1
        for form in candidate.gives:
            alone[form] += 1
        for form, count in REPORTED.items():
            exact[form] += candidate.last[form] == count
        if len(candidate.gives) == len(REPORTED):
            both.append(candidate)
    both.sort(key=lambda found: sum(abs(found.last[form] - count) for form, count in REPORTED.items()))
    families: dict[str, int] = {}
    for found in both:
        families[found.family] = families.get(found.family, 0) + 1
    return {
        "reported": REPORTED,
        "tried": tried,
        "possible_for_one": alone,
        "exact_when_later_tokens_win": exact,
        "possible_for_both": len(both),
        "families": families,
        "nearest": [
            {
                "family": found.family,
                "slots": list(found.slots),
                "low": found.low,
                "high": found.high,
                "last": found.last,
            }
            for found in both[:keep]
        ],
    }


def _candidates(seeds: int) -> Iterator[tuple[str, np.ndarray]]:
    steps = np.arange(TOKENS)
    for start in range(GEOMETRY.slots - TOKENS + 1):
        yield "16 in a row", start + steps
    for stride in range(2, 69):
        for start in range(0, GEOMETRY.slots - stride * (TOKENS - 1), 16):
            yield "evenly spaced", start + stride * steps
    for seed in range(seeds):
        random = np.random.default_rng(seed)
        yield "16 random slots", random.choice(GEOMETRY.slots, TOKENS, replace=False)
        yield "16 random slots in order", np.sort(random.choice(GEOMETRY.slots, TOKENS, replace=False))
        for blocks in (2, 4, 8):
            first = random.choice(GEOMETRY.blocks, blocks, replace=False) * GEOMETRY.block_size
            yield f"{blocks} random blocks, from their start", (first[:, None] + np.arange(TOKENS // blocks)).ravel()


def bounds(family: str, slots: np.ndarray) -> Candidate:
    """By rows of one head (16 elements), without moving a byte."""
    low, high, last = {}, {}, {}
    for form in REPORTED:
        right, wrong = _rows(slots, form, swapped=False), _rows(slots, form, swapped=True)
        inside = wrong[0] < 2 * GEOMETRY.slots * GEOMETRY.heads
        source = wrong[1][inside]
        # only rows that anyone touches, renumbered
        touched, number = np.unique(np.concatenate((right[0], wrong[0][inside])), return_inverse=True)
        here, at = number[: len(right[0])], number[len(right[0]) :]
        want, got = np.full(len(touched), -1), np.full(len(touched), -1)
        want[here] = right[1]
        got[at] = source
        past = source >= 2 * len(slots) * GEOMETRY.heads
        hit = source == want[at]
        any_right, any_wrong, any_past = (np.zeros(len(touched), bool) for _ in range(3))
        any_right[at[hit]] = True
        any_wrong[at[~hit & ~past]] = True
        any_past[at[past]] = True
        missed = (want >= 0) & ~any_right & ~any_wrong
        size = GEOMETRY.head_size
        low[form] = size * int((missed | (any_wrong & ~any_right)).sum())
        high[form] = size * int((missed | any_wrong | any_past).sum())
        last[form] = size * int((got != want).sum())
    return Candidate(family, tuple(int(slot) for slot in slots), low, high, last)


def _rows(slots: np.ndarray, form: str, *, swapped: bool) -> tuple[np.ndarray, np.ndarray]:
    """Where each staged row lands under HND, and its number in the staging; ``swapped``: head count and block size are
    read the wrong way round. Later tokens stand later."""
    block_size, heads = GEOMETRY.block_size, GEOMETRY.heads
    page = block_size * heads
    per_block, per_kv = (page, GEOMETRY.blocks * page) if form.startswith("kv_first") else (2 * page, page)
    row = len(slots) * heads
    if swapped:
        block_size, heads = heads, block_size
    head = np.arange(heads)
    block, offset = np.divmod(slots, block_size)
    at = block[:, None] * per_block + head * block_size + offset[:, None]
    source = np.arange(len(slots))[:, None] * GEOMETRY.heads + head
    return np.stack((at, at + per_kv), 1).ravel(), np.stack((source, source + row), 1).ravel()
