"""A sample of one wrong layer: a digest for every token row, expected and found, and one wrong page raw.

Row digests show where bytes came from (which token, which head, K or V); the raw page shows what was done to them.
"""

from __future__ import annotations

import torch

from e2e.inside.geometry import PagedLayer
from e2e.inside.probe import hashing
from e2e.inside.probe.wire import hexed, packed

#: Tokens around the first wrong block that are described; more would bloat the recording.
TOKENS = 2048
#: Blocks of a layer that are searched for rows which did not arrive, and how many of them are told.
SEARCHED, STRAYS = 4096, 512


def sample(
    expected: torch.Tensor, found: torch.Tensor, *, blank: torch.Tensor | None, layer: int, paged: PagedLayer,
    index: torch.Tensor,
) -> dict[str, object]:  # fmt: skip
    """``expected``, ``found``: [2, H, blocks, N, D] of one layer as integers, on the host, which differ somewhere.
    ``blank``: [2, H, N, D], what unwritten blocks hold. ``paged``: the layer itself, ``index`` the blocks read."""
    blocks = min(expected.shape[2], found.shape[2])
    wrong = (expected[:, :, :blocks] != found[:, :, :blocks]).flatten(3).any(3)
    block = int(wrong.any(0).any(0).nonzero()[0])
    kv, head = (int(i) for i in wrong[:, :, block].nonzero()[0])
    size, first = expected.shape[3], 0
    if expected.shape[2] * size > TOKENS:
        first = max(min(block - TOKENS // size // 4, expected.shape[2] - TOKENS // size), 0)
    span = slice(first, first + max(TOKENS // size, 1))
    rows_expected, rows_found = _rows(expected[:, :, span]), _rows(found[:, :, span])
    zero = hashing.digests(torch.zeros_like(expected[0, 0, 0, 0]), keep=0)
    return {
        "layer": layer, "kv": kv, "head": head, "block": block, "first_token": first * size, "block_size": size,
        "heads": expected.shape[1], "dtype": str(paged.dtype).removeprefix("torch."),
        "rows_expected": packed(rows_expected), "rows_found": packed(rows_found),
        "rows_blank": None if blank is None else packed(_rows(blank[:, :, None])),
        "zero_row": hexed(zero),
        "expected": packed(expected[kv, head, block]), "found": packed(found[kv, head, block]),
        "page_shape": list(expected.shape[3:]),
        "strays": packed(_strays(rows_expected, rows_found, paged, index[span], zero)),
    }  # fmt: skip


def _rows(pages: torch.Tensor) -> torch.Tensor:
    """[2, H, tokens] of [2, H, blocks, N, D]."""
    return hashing.digests(pages, keep=4).flatten(2)


def _strays(
    expected: torch.Tensor, found: torch.Tensor, paged: PagedLayer, index: torch.Tensor, zero: torch.Tensor
) -> torch.Tensor:  # fmt: skip
    """int64 [n, 6]: rows that did not arrive and lie elsewhere in this layer under another head, as (kv, head, slot)
    where expected and (kv, head, slot) where found. Bytes that went to the wrong address are seen by this even if none
    stayed near; a copy under the same head may be an honest one, of an earlier run or of an equal token. A row of zeros
    lies in many places."""
    size, tokens = paged.block_size, found.shape[2]
    missing = ((expected[:, :, :tokens] != found) & (expected[:, :, :tokens] != zero)).nonzero()
    wanted = expected[:, :, :tokens][tuple(missing.T)]
    blocks = torch.arange(min(paged.num_blocks, SEARCHED), device=paged.device)
    everywhere = _rows(hashing.pages(paged, blocks)).cpu()
    order = everywhere.flatten().argsort()
    sorted_rows = everywhere.flatten()[order]
    at = torch.searchsorted(sorted_rows, wanted).clamp(max=len(order) - 1)
    hit = sorted_rows[at] == wanted
    flat = order[at[hit]]
    heads, slots = everywhere.shape[1:]
    there = torch.stack((flat // (heads * slots), flat // slots % heads, flat % slots), 1)
    here = missing[hit]
    slot = index.cpu()[here[:, 2] // size] * size + here[:, 2] % size
    return torch.cat((here[:, :2], slot[:, None], there), 1)[here[:, 1] != there[:, 1]][:STRAYS]
