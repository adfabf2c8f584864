"""Names of placements and how to get one. Libraries are imported when a placement is asked for, not before."""

from __future__ import annotations

from importlib import import_module

import torch

from e2e.inside.placement.base import Placement, Unavailable

__all__ = ["NAMES", "Placement", "Unavailable", "get"]

_TABLE = {
    "reference": ("reference", "Reference"),
    "index": ("index", "Index"),
    "triton": ("triton_kernel", "Triton"),
    "lmcache": ("lmcache_kernel", "LMCache"),
    "maru_kv_ops": ("maru_ops", "MaruKvOps"),
}
#: "kernel" is the flat walk on a CPU and our Triton kernel on a GPU.
NAMES = ("index", "kernel", "triton", "lmcache", "maru_kv_ops", "reference")


def get(name: str, device: torch.device | str = "cpu") -> Placement:
    """ValueError for an unknown name, Unavailable when it can't run here; one sentence each."""
    if name not in NAMES:
        raise ValueError(f"placement {name!r} is unknown; use {', '.join(NAMES[:-1])} or {NAMES[-1]}.")
    cuda = torch.device(device).type == "cuda"
    if name == "kernel":
        module, cls = ("triton_kernel", "Triton") if cuda else ("flat_walk", "FlatWalk")
    else:
        module, cls = _TABLE[name]
    if name in ("lmcache", "maru_kv_ops") and not cuda:
        raise Unavailable(f"placement {name} needs a CUDA GPU; on a CPU use kernel or index.")
    return getattr(import_module(f"e2e.inside.placement.{module}"), cls)()
