"""The sums of mix.py in one launch."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from e2e.inside.mix import BLOCK


def _sum(
    words, added, factors, out, count, blocks,
    LANES: tl.constexpr, TABLE: tl.constexpr, WORDS: tl.constexpr,
):  # fmt: skip
    """One block of one row. ``count``: words of a row, which has ``blocks``."""
    program = tl.program_id(0)
    index = tl.arange(0, WORDS)
    at = (program % blocks) * TABLE + index
    there = at < count
    word = tl.load(words + (program // blocks).to(tl.int64) * count + at, mask=there, other=0).to(tl.int64)
    for lane in tl.static_range(LANES):
        shift = tl.load(added + lane * TABLE + index)
        factor = tl.load(factors + lane * TABLE + index)
        tl.store(out + program.to(tl.int64) * LANES + lane, tl.sum(tl.where(there, (word + shift) * factor, 0)))


_compiled = triton.jit(_sum)


def launch(words: torch.Tensor, added: torch.Tensor, factors: torch.Tensor, lanes: int) -> torch.Tensor:
    """int64 [n, blocks, lanes]"""
    rows, count = words.shape
    blocks = triton.cdiv(count, BLOCK)
    out = torch.empty((rows, blocks, lanes), dtype=torch.int64, device=words.device)
    if out.numel():
        width = min(BLOCK, triton.next_power_of_2(count))
        _compiled[(rows * blocks,)](words, added, factors, out, count, blocks, LANES=lanes, TABLE=BLOCK, WORDS=width)
    return out
