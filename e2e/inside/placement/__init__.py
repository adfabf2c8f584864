"""The values of the axis ``placement``, and how to get one. Triton is imported when a GPU asks for it, not before."""

from __future__ import annotations

import torch

from e2e.inside.placement.base import Placement, Unavailable
from e2e.inside.placement.flat_walk import FlatWalk
from e2e.inside.placement.index import Index

__all__ = ["NAMES", "Placement", "Unavailable", "get"]

#: "kernel" is the flat walk on a CPU and our Triton kernel on a GPU.
NAMES = ("index", "kernel")


def get(name: str, device: torch.device | str = "cpu") -> Placement:
    """ValueError for an unknown name, Unavailable when it can't run here; one sentence each."""
    if name not in NAMES:
        raise ValueError(f"placement {name!r} is unknown; use {' or '.join(NAMES)}.")
    if name == "index":
        return Index()
    if torch.device(device).type == "cpu":
        return FlatWalk()
    from e2e.inside.placement.triton_kernel import Triton

    return Triton()
