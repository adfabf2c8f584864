"""Placement: scatter staged KV of a request into the paged cache by slot, and gather it back out for a store.

Shapes, in elements: ``staged`` [L, 2, T, H, D], K at [:, 0] and V at [:, 1], dtype and device of the cache, last axis
contiguous; it may be a view (of a [2, L, T, H, D] or a token-major [L, T, 2, H, D] buffer). ``layers``: L PagedLayers
of equal geometry. ``slots``: int64 [T] on the same device, slot = block * block_size + offset; a negative slot is a
token to skip; equal non-negative slots and slots past the cache are the caller's fault, which nobody
notices.

Streams: everything is queued on the current stream, nothing waits for the device (but see Index on negative slots).
The caller keeps ``staged`` alive until the work is done, and orders streams by events.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch

from e2e.inside.geometry import PagedLayer


class Unavailable(RuntimeError):
    """This implementation can't be used on this machine: library missing, built for another torch, or no GPU.
    One sentence."""


class Placement(Protocol):
    name: str

    def scatter(self, staged: torch.Tensor, layers: Sequence[PagedLayer], slots: torch.Tensor) -> int:
        """Writes every non-negative slot of every layer and nothing else; returns the number of placement calls (kernel
        launches where it is one kernel). ValueError for a geometry it can't address."""

    def gather(self, layers: Sequence[PagedLayer], slots: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
        """The reverse, into ``out`` [L, 2, T, H, D], which is returned. Rows of negative slots stay as they are."""


def check(staged: torch.Tensor, layers: Sequence[PagedLayer], slots: torch.Tensor) -> PagedLayer:
    """Everything that can be checked without touching the device. Returns the first layer, which stands for all."""
    first = check_layers(layers)
    check_call(staged, first, len(layers), slots)
    return first


def check_layers(layers: Sequence[PagedLayer]) -> PagedLayer:
    """The part that needs doing once per set of layers."""
    if not layers:
        raise ValueError("there is no layer to place into.")
    first = layers[0]
    geometry = (first.logical.shape, first.logical.stride(), first.dtype)
    if any((layer.logical.shape, layer.logical.stride(), layer.dtype) != geometry for layer in layers):
        raise ValueError("layers of different geometry can't be placed in one call; group them first.")
    if not all(layer.token_granular for layer in layers):
        raise ValueError("this attention backend packs pages in its own way, so single tokens can't be placed.")
    return first


def check_call(staged: torch.Tensor, first: PagedLayer, count: int, slots: torch.Tensor) -> None:
    """Staging and slots against ``count`` layers like ``first``."""
    wanted = (count, 2, slots.numel(), first.heads, first.head_size)
    if tuple(staged.shape) != wanted:
        raise ValueError(f"staged KV has shape {tuple(staged.shape)}, but layers and slots make it {wanted}.")
    if staged.dtype != first.dtype:
        raise ValueError(f"staged KV is {staged.dtype}, but the cache is {first.dtype}.")
    if slots.dtype != torch.int64 or slots.dim() != 1:
        raise ValueError(f"slots must be int64 [T], not {slots.dtype} {tuple(slots.shape)}.")
    if first.device != staged.device or slots.device != staged.device:
        places = f"staged KV on {staged.device}, slots on {slots.device} and cache on {first.device}"
        raise ValueError(f"{places} can't be mixed.")
    if staged.stride(4) != 1 and first.head_size > 1:
        raise ValueError("a head's elements must be adjacent in staged KV.")


def new_staging(layers: Sequence[PagedLayer], tokens: int) -> torch.Tensor:
    """Zeros [L, 2, T, H, D] on the cache's device."""
    first = layers[0]
    return torch.zeros((len(layers), 2, tokens, first.heads, first.head_size), dtype=first.dtype, device=first.device)


def words(tensor: torch.Tensor) -> torch.Tensor:
    """The same bytes as integers of the same width: copies then keep NaN payloads and need no fp8 support."""
    size = tensor.element_size()
    return tensor.view({1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[size])


def raw(tensor: torch.Tensor) -> memoryview:
    """The bytes of a contiguous tensor on the host, as a pool takes them: a view, not a copy."""
    return memoryview(tensor.view(-1).view(torch.uint8).numpy())


def buffers(tensor: torch.Tensor, count: int) -> Sequence[memoryview] | Sequence[torch.Tensor]:
    """A contiguous tensor in equal parts, as the memory of a pool takes them that is read and written from the tensor's
    device."""
    if tensor.is_cuda:
        return tensor.view(count, -1).view(torch.uint8).unbind()
    whole, size = raw(tensor), tensor.nbytes // count
    return [whole[at * size : (at + 1) * size] for at in range(count)]
