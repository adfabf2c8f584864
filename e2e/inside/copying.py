"""How fast this machine copies at all: pinned memory to the GPU, or memory to memory on a CPU."""

from __future__ import annotations

import time

import torch

#: Large enough that a launch costs nothing beside it, and that no CPU's cache holds it.
BYTES, TRIES = 128 << 20, 5


def fastest(device: torch.device, size: int = BYTES) -> dict[str, object]:
    """{"bytes", "seconds", "how"} of the fastest of a few copies of ``size`` bytes."""
    cuda = device.type == "cuda"
    source = torch.ones(size, dtype=torch.uint8, pin_memory=cuda)
    target = torch.zeros(size, dtype=torch.uint8, device=device)
    taken = []
    for _ in range(TRIES):
        if cuda:
            torch.cuda.synchronize(device)
        began = time.perf_counter()
        target.copy_(source, non_blocking=cuda)
        if cuda:
            torch.cuda.synchronize(device)
        taken.append(time.perf_counter() - began)
    return {"bytes": size, "seconds": min(taken), "how": "pinned memory to the GPU" if cuda else "memory to memory"}
