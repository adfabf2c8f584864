"""A hash of rows that a GPU computes faster than it is fed: what xxHash is on a CPU.

A sum of (word + a_i) * m_i with odd random m_i, 32-bit words in wraparound 64-bit arithmetic, over blocks of 16 KiB;
what is longer is hashed again over the blocks' sums. One flipped bit always changes it; other bytes collide with a
chance of about 2**-32 in one lane, and 2**-64 in two. Here in PyTorch, for any device, and as a kernel for GPUs.
"""

from __future__ import annotations

from functools import cache

import torch

#: Words of 32 bits that are summed up at once.
BLOCK = 4096
_LANES = 2


def sums(rows: torch.Tensor, *, lanes: int = 1) -> torch.Tensor:
    """int64 [n, lanes], the bits of unsigned values, over each of ``rows`` (contiguous, [n, anything]). Waits for
    nothing."""
    words = rows.reshape(rows.shape[0], -1).view(torch.uint8)
    words = words.view(torch.int32) if words.shape[1] % 4 == 0 else words
    while True:
        level = (_launched if words.is_cuda else _summed)(words, lanes)
        if level.shape[1] <= 1:
            return level[:, 0]
        words = level.view(len(words), -1).view(torch.int32)


def _summed(words: torch.Tensor, lanes: int) -> torch.Tensor:
    """int64 [n, blocks, lanes]"""
    added, factors = _coefficients(words.device)
    parts = [
        ((block.to(torch.int64)[:, None] + added[:lanes, : block.shape[1]]) * factors[:lanes, : block.shape[1]]).sum(2)
        for block in words.split(BLOCK, dim=1)
    ]
    return torch.stack(parts, dim=1)


def _launched(words: torch.Tensor, lanes: int) -> torch.Tensor:
    from e2e.inside.mix_kernel import launch

    return launch(words, *_coefficients(words.device), lanes)


@cache
def _coefficients(device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """int64 [lanes, BLOCK] each."""
    generator = torch.Generator().manual_seed(0x6D617275)
    drawn = torch.randint(-(1 << 63), (1 << 63) - 1, (2, _LANES, BLOCK), generator=generator)
    return drawn[0].to(device), (drawn[1] | 1).to(device)
