"""A planted fault's name: ``bit_flip`` strikes every rank, ``bit_flip_on_rank_1`` that one alone."""

from __future__ import annotations

_ON_RANK = "_on_rank_"


def parted(name: str) -> tuple[str, int | None]:
    """(fault, the only rank that it strikes, or None)."""
    fault, _, rank = name.rpartition(_ON_RANK)
    return (fault, int(rank)) if fault and rank.isdecimal() else (name, None)
