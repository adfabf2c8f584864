"""The guard: which classes of fault a cell can't see, because its shapes are degenerate or a check is off.

Classes are those of docs/faults.md#classes: A layout and addressing, B races, C failed loads, D identity, E lost reuse.
Degenerate shapes hide class A: equal or tiny sizes make wrong and right addresses the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from e2e.base.connector import HitRule


@dataclass(frozen=True)
class Geometry:
    """``kv_heads``: KV heads on one rank. ``layers``: those that hold KV."""

    kv_heads: int
    layers: int
    block_size: int


def guard(geometry: Geometry, hit_rule: HitRule, lengths: Sequence[int], *, digests: bool) -> list[dict[str, str]]:
    """``[{"fault_class", "why"}]`` for one cell, as it stands in ``plan.cell``; empty when it sees all.

    ``lengths``: prompt lengths in tokens. A class is seen when one prompt sees it, so the longest one counts.
    """
    served = max((hit_rule.external(n) for n in lengths), default=0)
    found = {
        **dict(_shapes(geometry)),
        **dict(_spans(served, hit_rule, geometry.block_size, lengths)),
        **dict(_checks(digests=digests)),
    }
    return [{"fault_class": name, "why": why} for name, why in found.items()]


def _shapes(geometry: Geometry) -> Iterator[tuple[str, str]]:
    heads, block = geometry.kv_heads, geometry.block_size
    if heads == block:
        yield "axes swapped", f"a block has as many tokens as there are KV heads ({heads}), so swapped axes look right"
    elif heads == 1:
        yield "axes swapped", "with one KV head per rank NHD and HND are the same bytes"
    elif block == 1:
        yield "axes swapped", "with one token a block NHD and HND are the same bytes"
    if heads == 1:
        yield "heads permuted", "with one KV head per rank there is nothing to permute"
    elif heads == 2:
        yield "K/V axis mistaken", "with two KV heads per rank the K/V axis can be taken for the head axis"
    if geometry.layers == 1:
        yield "neighbour layer", "the model has one layer"


def _spans(served: int, rule: HitRule, block_size: int, lengths: Sequence[int]) -> Iterator[tuple[str, str]]:
    blocks, chunks = served // block_size, served // rule.granularity
    if blocks <= 1:
        yield "blocks mixed up", "no prompt has more than one block served"
    elif blocks == 2:
        yield "blocks mixed up", "with two blocks served a swap can't be told from a shift, nor blocks from K/V"
    if rule.granularity > 1 and chunks <= 1:
        yield "chunks mixed up", "no prompt has more than one chunk served"
    if lengths and all(n == rule.granularity for n in lengths):
        yield "tail rule", "every prompt is exactly one chunk long, so nothing follows what is stored"


def _checks(*, digests: bool) -> Iterator[tuple[str, str]]:
    if not digests:
        yield "bytes without effect", "digests are off: wrong bytes that move no output logprob are not seen"
