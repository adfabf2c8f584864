"""A sample of one wrong layer: a digest for every token row, expected and found, and one wrong page raw.

Row digests show where bytes came from (which token, which head, K or V); the raw page shows what was done to them.
"""

from __future__ import annotations

import torch

from e2e.inside.probe import hashing
from e2e.inside.probe.wire import hexed, packed

#: Tokens around the first wrong block that are described; more would bloat the recording.
TOKENS = 2048


def sample(
    expected: torch.Tensor, found: torch.Tensor, *, blank: torch.Tensor | None, layer: int, dtype: torch.dtype
) -> dict[str, object]:
    """``expected``, ``found``: [2, H, blocks, N, D] of one layer as integers, on the host, which differ somewhere.
    ``blank``: [2, H, N, D], what unwritten blocks hold."""
    blocks = min(expected.shape[2], found.shape[2])
    wrong = (expected[:, :, :blocks] != found[:, :, :blocks]).flatten(3).any(3)
    block = int(wrong.any(0).any(0).nonzero()[0])
    kv, head = (int(i) for i in wrong[:, :, block].nonzero()[0])
    size, first = expected.shape[3], 0
    if expected.shape[2] * size > TOKENS:
        first = max(min(block - TOKENS // size // 4, expected.shape[2] - TOKENS // size), 0)
    span = slice(first, first + max(TOKENS // size, 1))
    return {
        "layer": layer, "kv": kv, "head": head, "block": block, "first_token": first * size, "block_size": size,
        "heads": expected.shape[1], "dtype": str(dtype).removeprefix("torch."),
        "rows_expected": packed(_rows(expected[:, :, span])), "rows_found": packed(_rows(found[:, :, span])),
        "rows_blank": None if blank is None else packed(_rows(blank[:, :, None])),
        "zero_row": hexed(hashing.digests(torch.zeros_like(expected[0, 0, 0, 0]), keep=0)),
        "expected": packed(expected[kv, head, block]), "found": packed(found[kv, head, block]),
        "page_shape": list(expected.shape[3:]),
    }  # fmt: skip


def _rows(pages: torch.Tensor) -> torch.Tensor:
    """[2, H, tokens] of [2, H, blocks, N, D]."""
    return hashing.digests(pages, keep=4).flatten(2)
