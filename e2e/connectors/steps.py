"""A connector's chunk, and the prefill step that aligns a cold run with its rerun."""

from __future__ import annotations

from math import lcm

from e2e.base.cell import Cell

#: Long enough that a prompt of three steps is quick, short enough that a chunked prefill really happens.
_LEAST_TOKENS = 512


def aligned_step(granularity: int, block_size: int) -> int:
    """The smallest step of at least 512 tokens that ends on a unit of the connector and on a block, in tokens."""
    unit = lcm(granularity, block_size)
    return -(-_LEAST_TOKENS // unit) * unit


def chunk_tokens(cell: Cell) -> int:
    """Of a connector that has chunks."""
    return int(cell.get("chunk_tokens") or 256)
