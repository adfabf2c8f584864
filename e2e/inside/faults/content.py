"""Faults of content: the right addresses get the wrong bytes. All act on staged KV [L, 2, T, H, D]."""

from __future__ import annotations

import torch

from e2e.inside.faults.base import Fault, Scene
from e2e.inside.placement.base import words


class KvSwapped(Fault):
    """Keys where values belong and the reverse: class A, packed K/V taken for split (LMCache 4463)."""

    name = "kv_swapped"
    around_any = True

    def staged(self, staged: torch.Tensor, group: range, scene: Scene) -> torch.Tensor:
        scene.fired()
        return staged.flip(1)


class HeadsPermuted(Fault):
    """Heads rotated by one: class A, heads permuted across tensor-parallel ranks."""

    name = "heads_permuted"
    around_any = True

    def staged(self, staged: torch.Tensor, group: range, scene: Scene) -> torch.Tensor:
        if staged.shape[3] < 2:
            return staged
        scene.fired()
        return staged.roll(1, dims=3)


class NeighbourLayer(Fault):
    """The middle layer gets the next one's bytes: class A, wrong pitched-copy offset."""

    name = "neighbour_layer"

    def layer(self, scene: Scene) -> int:
        return scene.middle

    def staged(self, staged: torch.Tensor, group: range, scene: Scene) -> torch.Tensor:
        if scene.layers < 2 or self.layer(scene) not in group:
            return staged
        scene.fired()
        staged = staged.clone()
        at = self.layer(scene) - group.start
        staged[at] = staged[at + 1 if at + 1 < len(group) else at - 1]
        return staged


class LayerOrderShifted(Fault):
    """Every layer gets the one before it: class A, stage-local layer index in a key under pipeline parallelism."""

    name = "layer_order_shifted"

    def staged(self, staged: torch.Tensor, group: range, scene: Scene) -> torch.Tensor:
        if len(group) < 2:
            return staged
        scene.fired()
        return staged.roll(1, dims=0)


class _MiddleLayer(Fault):
    """Spoils the middle layer of a copy. ``spoil`` gets that layer [2, T, H, D]."""

    around_any = True

    def staged(self, staged: torch.Tensor, group: range, scene: Scene) -> torch.Tensor:
        if scene.middle not in group or not self.can_spoil(staged):
            return staged
        scene.fired()
        staged = staged.clone()
        self.spoil(staged[scene.middle - group.start])
        return staged

    def can_spoil(self, staged: torch.Tensor) -> bool:
        return True

    def spoil(self, layer: torch.Tensor) -> None:
        raise NotImplementedError


class BitFlip(_MiddleLayer):
    """The lowest bit of one element of the middle layer: memory or link error below every checksum. Too small to move
    a token, and often a logprob."""

    name = "bit_flip"

    def spoil(self, layer: torch.Tensor) -> None:
        tokens, heads, size = layer.shape[1:]
        words(layer)[1, tokens // 2, heads // 2, size // 2] ^= 1


class ReadAsFp16(Fault):
    """bfloat16 bytes read as float16 (float32 caches go through bfloat16 first): class A, dtype taken from the wrong
    configuration. float16 caches read as bfloat16."""

    name = "read_as_fp16"
    around_any = True

    def staged(self, staged: torch.Tensor, group: range, scene: Scene) -> torch.Tensor:
        if staged.element_size() == 1:
            return staged
        scene.fired()
        stored = torch.float16 if staged.dtype == torch.float16 else torch.bfloat16
        read_as = torch.bfloat16 if stored == torch.float16 else torch.float16
        misread = staged.to(stored).contiguous().view(read_as).to(torch.float32)
        largest = torch.finfo(staged.dtype).max
        return misread.nan_to_num(0.0, posinf=largest, neginf=-largest).clamp(-largest, largest).to(staged.dtype)


class ScaleLost(_MiddleLayer):
    """The middle layer comes back at half its size: class A, quantization scales lost (vLLM 48412)."""

    name = "scale_lost"

    def can_spoil(self, staged: torch.Tensor) -> bool:
        return staged.element_size() > 1

    def spoil(self, layer: torch.Tensor) -> None:
        layer *= 0.5


class ZeroLayer(_MiddleLayer):
    """The middle layer comes back as zeros: class C, a transfer that never wrote its fresh buffer."""

    name = "zero_layer"

    def spoil(self, layer: torch.Tensor) -> None:
        words(layer).zero_()
