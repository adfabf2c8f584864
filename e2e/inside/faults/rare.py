"""Faults that strike one object in a hundred, so that a short story most often has none of these."""

from __future__ import annotations

import zlib

import torch

from e2e.inside.faults.base import Fault, Scene
from e2e.inside.placement.base import words

#: Of so many chunks one is struck, by its key: whoever loads it, as often as it is loaded.
ONE_IN = 100


class RareBitFlip(Fault):
    """One chunk in a hundred comes back with another lowest bit in its middle layer: class B, a race that is seldom
    lost."""

    name = "rare_bit_flip"

    def found(self, key: str, kv: torch.Tensor, scene: Scene) -> torch.Tensor:
        if zlib.crc32(key.encode()) % ONE_IN:
            return kv
        scene.fired()
        kv = kv.clone()
        words(kv[scene.middle])[1, 0, 0, 0] ^= 1
        return kv
