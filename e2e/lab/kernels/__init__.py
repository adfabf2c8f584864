"""What is compared here: the engine's own placements, and those that no engine of ours uses."""

from __future__ import annotations

from importlib import import_module

import torch

from e2e.inside import placement
from e2e.inside.placement import Placement, Unavailable

#: Published kernels; each takes ``launch`` and ``view`` (see transfer).
LIBRARIES = ("lmcache", "maru_kv_ops")
_OURS = {
    "reference": ("e2e.lab.kernels.reference", "Reference"),
    "triton": ("e2e.inside.placement.triton_kernel", "Triton"),
}


def get(name: str, device: torch.device | str = "cpu", **how: object) -> Placement:
    """``how`` is for libraries. Unavailable, one sentence, when it can't run here. Imported when asked for."""
    if name in LIBRARIES:
        if torch.device(device).type != "cuda":
            raise Unavailable(f"placement {name} needs a CUDA GPU; on a CPU use kernel or index.")
        from e2e.lab.kernels import libraries, transfer

        return transfer.Transfer(getattr(libraries, name)(), **how)
    if name in _OURS:
        module, cls = _OURS[name]
        return getattr(import_module(module), cls)()
    return placement.get(name, device)


def first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
