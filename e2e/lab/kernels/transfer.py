"""The published kernels of LMCache, and Maru's copy of them, behind our interface.

``single_layer_kv_transfer`` takes one layer's tensor and assumes the in-page order of the format, so it gets the
physical-order view. ``multi_layer_kv_transfer`` is told its geometry and never sees a stride, so it is refused for
layers whose pages aren't tight. Both count in words of 8 bytes (multi: fewer where a token's row needs it). Arguments
are passed by position: their names changed between 0.4.5 and 0.5.6.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import ModuleType

import torch

from e2e.inside.geometry import PagedLayer
from e2e.inside.placement.base import check
from e2e.inside.placement.flat_walk import physical_view
from e2e.lab.kernels import first_line

#: (form, head-major) -> name in the library's format enum. The packed ones exist from 0.5.6 on, for multi-layer only.
FORMATS = {
    ("kv_first", False): "NL_X_TWO_NB_BS_NH_HS",
    ("kv_first", True): "NL_X_TWO_NB_NH_BS_HS",
    ("blocks_first", False): "NL_X_NB_TWO_BS_NH_HS",
    ("blocks_first", True): "NL_X_NB_TWO_NH_BS_HS",
    ("packed", False): "NL_X_NB_BS_NH_CS",
    ("packed", True): "NL_X_NB_NH_BS_CS",
}


@dataclass(frozen=True)
class Library:
    """``name``: of the placement. ``ops`` holds the two functions, ``formats`` and ``directions`` the enums.
    ``block_stride``: does multi-layer take a trailing block stride (0.5.6)."""

    name: str
    ops: ModuleType
    formats: object
    directions: object
    block_stride: bool


class Transfer:
    """``launch``: "single" (one launch per layer) or "multi" (one for all). ``view`` is what the single-layer kernel is
    handed; other views than the default plant the defect."""

    def __init__(
        self, library: Library, *, launch: str, view: Callable[[PagedLayer], torch.Tensor] = physical_view
    ) -> None:
        if launch not in ("single", "multi"):
            raise ValueError(f"launch {launch!r} is unknown; use single or multi.")
        self.name, self.library, self.launch, self.view = library.name, library, launch, view
        self._tables: dict[tuple[int, ...], torch.Tensor] = {}

    def scatter(self, staged: torch.Tensor, layers: Sequence[PagedLayer], slots: torch.Tensor) -> int:
        return self._move(staged, layers, slots, direction=self.library.directions.H2D)[0]

    def gather(self, layers: Sequence[PagedLayer], slots: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
        _, moved = self._move(out, layers, slots, direction=self.library.directions.D2H)
        if moved.data_ptr() != out.data_ptr():
            out.copy_(moved)
        return out

    def _move(self, staged: torch.Tensor, layers: Sequence[PagedLayer], slots: torch.Tensor, *, direction: object):
        """(launches, the buffer that was used as [L,2,T,H,D]): the staging itself, or a copy of it where its order
        isn't one that the kernel takes."""
        first = check(staged, layers, slots)
        if first.row_pitch is None:
            raise ValueError(
                f"layout {first.layout} doesn't space the rows of a page evenly, so {self.name} can't walk it."
            )
        if not slots.numel():
            return 0, staged
        kind = getattr(self.library.formats, FORMATS[first.form, first.head_major], None)
        if kind is None:
            raise ValueError(f"this {self.name} has no format for {first.form} pages in {first.layout} order.")
        try:
            move = self._single if self.launch == "single" else self._multi
            return move(staged, layers, slots, direction, kind)
        except RuntimeError as error:
            if isinstance(error, getattr(torch, "AcceleratorError", ())):
                raise  # the device failed, which is no refusal
            raise ValueError(
                f"{self.name} refuses {first.form} pages in {first.layout} order: {first_line(error).rstrip('.')}."
            ) from error

    def _single(self, staged, layers, slots, direction, kind):
        first = layers[0]
        if first.form == "packed":
            raise ValueError(f"single_layer_kv_transfer of {self.name} has no packed format.")
        item = staged.element_size()
        if any(number * item % 8 for number in (first.head_size, *first.logical.stride()[:2])):
            raise ValueError(
                f"single_layer_kv_transfer moves words of 8 bytes, and a head has {first.head_size * item}."
            )
        # [L,T,2,H,D] buffers are taken as they are (token-major), anything else as [L,2,T,H,D]
        token_major = staged.transpose(1, 2).is_contiguous() and not staged.is_contiguous()
        staged = staged if token_major else staged.contiguous()
        for row, layer in zip(staged, layers, strict=True):
            view = self.view(layer)
            paged = view.transpose(0, 1) if layer.form == "kv_first" else view
            buffer = row.transpose(0, 1) if token_major else row
            self.library.ops.single_layer_kv_transfer(buffer.flatten(2), paged, slots, direction, kind, token_major)
        return len(layers), staged

    def _multi(self, staged, layers, slots, direction, kind):
        first = layers[0]
        packed = first.form == "packed"
        block, kv = first.logical.stride()[:2]
        page = first.heads * first.block_size * first.head_size
        tight = {"kv_first": (page, first.num_blocks * page), "blocks_first": (2 * page, page)}.get(first.form)
        if tight not in (None, (block, kv)) or (packed and block != 2 * page and not self.library.block_stride):
            raise ValueError(f"multi_layer_kv_transfer of {self.name} is told sizes only, and these pages have gaps.")
        if packed:  # K|V stand beside each other in the staging too: [1, L, T, H*2D]
            order = (0, 2, 3, 1, 4)
            buffer = staged.permute(order).contiguous()
            used = buffer.permute(0, 3, 1, 2, 4)
            buffer = buffer.view(1, len(layers), slots.numel(), -1)
        else:  # [2, L, T, H*D]
            buffer = staged.transpose(0, 1).contiguous()
            used = buffer.transpose(0, 1)
            buffer = buffer.flatten(3)
        extra = (block,) if self.library.block_stride else ()
        self.library.ops.multi_layer_kv_transfer(
            buffer, self._table(layers), slots, first.device, first.num_blocks * first.block_size, direction, kind,
            first.block_size, first.head_size, 0, *extra,
        )  # fmt: skip
        return 1, used

    def _table(self, layers: Sequence[PagedLayer]) -> torch.Tensor:
        """int64 [L] on the device: where each layer starts."""
        key = tuple(layer.registered.data_ptr() for layer in layers)
        if key not in self._tables:
            self._tables[key] = torch.tensor(key, dtype=torch.int64).to(layers[0].device)
        return self._tables[key]
