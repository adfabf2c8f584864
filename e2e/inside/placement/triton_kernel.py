"""Our own placement kernel: every address is computed from strides, so there is no layout that it could misread.

One launch moves all layers. Rows of D elements (one token, head, K or V) are copied as words: the widest integers that
sizes, strides and addresses allow, paired to 16-byte accesses by the compiler where they can be. Layers are found
through a table of addresses on the device, kept per set of layers; the staging is addressed by its strides, so that
[L,2,T,H,D], [2,L,T,H,D] and token-major [L,T,2,H,D] buffers all do.

Memory order of the loop: programs are (tile of (token, head) rows) x layer; each moves K and V of its rows.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import torch

from e2e.inside.geometry import PagedLayer
from e2e.inside.placement.base import Unavailable, check_call, check_layers, new_staging

try:
    import triton
    import triton.language as tl
except Exception as error:  # a broken Triton raises more than ImportError
    raise Unavailable(f"placement triton needs the triton package, which can't be imported here: {error}.") from error


def _move(
    staged, table, slots, rows, staged_l, staged_kv, staged_t, staged_h, paged_b, paged_kv, paged_n, paged_h,
    HEADS: tl.constexpr, BLOCK_SIZE: tl.constexpr, ROW: tl.constexpr, ROW_PADDED: tl.constexpr, TILE: tl.constexpr,
    ALIGN: tl.constexpr, ALIGN_BYTES: tl.constexpr, GATHER: tl.constexpr,
):  # fmt: skip
    """``rows`` = T * H. Strides and ROW in words; ALIGN words (ALIGN_BYTES bytes) divide all strides and addresses."""
    layer = tl.program_id(1)
    row = tl.program_id(0) * TILE + tl.arange(0, TILE)
    token = row // HEADS
    head = (row % HEADS).to(tl.int64)
    slot = tl.load(slots + token, mask=row < rows, other=-1)
    block = slot // BLOCK_SIZE
    offset = slot % BLOCK_SIZE
    there = block * paged_b + offset * paged_n + head * paged_h
    here = layer.to(tl.int64) * staged_l + token.to(tl.int64) * staged_t + head * staged_h
    # one hint per offset: on a sum they hold, on an argument they would be lost
    there_k, there_v = tl.multiple_of(there, [ALIGN]), tl.multiple_of(there + paged_kv, [ALIGN])
    here_k, here_v = tl.multiple_of(here, [ALIGN]), tl.multiple_of(here + staged_kv, [ALIGN])
    word = tl.arange(0, ROW_PADDED)[None, :]
    mask = (slot >= 0)[:, None] & (word < ROW)
    paged = tl.multiple_of(tl.load(table + layer).to(staged.dtype), ALIGN_BYTES)
    paged_k, paged_v = paged + (there_k[:, None] + word), paged + (there_v[:, None] + word)
    staged_k, staged_v = staged + (here_k[:, None] + word), staged + (here_v[:, None] + word)
    if GATHER:
        k = tl.load(paged_k, mask=mask)
        v = tl.load(paged_v, mask=mask)
        tl.store(staged_k, k, mask=mask)
        tl.store(staged_v, v, mask=mask)
    else:
        k = tl.load(staged_k, mask=mask, eviction_policy="evict_first")
        v = tl.load(staged_v, mask=mask, eviction_policy="evict_first")
        tl.store(paged_k, k, mask=mask)
        tl.store(paged_v, v, mask=mask)


#: A stride of 1 would become a constant, and every divisibility a kernel of its own; ALIGN says what matters.
_PLAIN = ["rows", "staged_l", "staged_kv", "staged_t", "staged_h", "paged_b", "paged_kv", "paged_n", "paged_h"]


@cache
def _compiled():
    return triton.jit(_move, do_not_specialize=_PLAIN)


@cache
def _interpreted():
    from triton.runtime.interpreter import InterpretedFunction

    return InterpretedFunction(_move)


_WORDS = {8: torch.int64, 4: torch.int32, 2: torch.int16, 1: torch.uint8}


@dataclass(frozen=True)
class _Plan:
    """All that a launch needs to know of a set of layers. ``align``: bytes that divide every address and stride."""

    table: torch.Tensor
    align: int
    first: PagedLayer


class Triton:
    """``tile_bytes``: bytes of K that one program moves (as many of V); ``warps`` per program."""

    name = "triton"

    def __init__(self, *, tile_bytes: int = 16384, warps: int = 4, remembered: int = 512) -> None:
        self.tile_bytes, self.warps, self.remembered = tile_bytes, warps, remembered
        self._plans: OrderedDict[tuple[PagedLayer, ...], _Plan] = OrderedDict()

    def scatter(self, staged: torch.Tensor, layers: Sequence[PagedLayer], slots: torch.Tensor) -> int:
        return self._launch(staged, layers, slots, gather=False)

    def gather(
        self, layers: Sequence[PagedLayer], slots: torch.Tensor, out: torch.Tensor | None = None
    ) -> torch.Tensor:
        out = new_staging(layers, slots.numel()) if out is None else out
        self._launch(out, layers, slots, gather=True)
        return out

    def _launch(self, staged: torch.Tensor, layers: Sequence[PagedLayer], slots: torch.Tensor, *, gather: bool) -> int:
        plan = self._plan(staged, layers, slots)
        rows = slots.numel() * plan.first.heads
        if not rows:
            return 0
        item = staged.element_size()
        align = _common(plan.align, staged.data_ptr(), *(step * item for step in staged.stride()[:4]))
        width = min(align, 8)
        per = width // item
        row = plan.first.head_size // per
        padded = triton.next_power_of_2(row)
        tile = max(1, min(self.tile_bytes // (padded * width), triton.next_power_of_2(rows)))
        grid = (triton.cdiv(rows, tile), len(layers))
        strides = [step // per for step in (*staged.stride()[:4], *_steps(plan.first))]
        kernel = _compiled() if staged.is_cuda else _interpreted()
        kernel[grid](
            _as(staged, _WORDS[width]), plan.table, slots, rows, *strides,
            HEADS=plan.first.heads, BLOCK_SIZE=plan.first.block_size, ROW=row, ROW_PADDED=padded, TILE=tile,
            ALIGN=align // width, ALIGN_BYTES=align, GATHER=gather, num_warps=self.warps,
        )  # fmt: skip
        return 1

    def _plan(self, staged: torch.Tensor, layers: Sequence[PagedLayer], slots: torch.Tensor) -> _Plan:
        key = tuple(layers)
        plan = self._plans.get(key)
        if plan is None:
            first = check_layers(layers)
            item = first.dtype.itemsize
            addresses = [layer.registered.data_ptr() for layer in layers]
            align = _common(16, *addresses, first.head_size * item, *(step * item for step in _steps(first)))
            # a copy from pageable memory is over when it returns, so any stream may read the table
            plan = _Plan(torch.tensor(addresses, dtype=torch.int64).to(first.device), align, first)
            self._plans[key] = plan
            if len(self._plans) > self.remembered:
                self._plans.popitem(last=False)
        check_call(staged, plan.first, len(key), slots)
        return plan


def _steps(layer: PagedLayer) -> tuple[int, ...]:
    """Strides of block, K/V, token and head, in elements."""
    return layer.logical.stride()[:4]


def _common(limit: int, *numbers: int) -> int:
    """The largest power of two up to ``limit`` that divides all numbers (0 is divisible by all)."""
    while any(number % limit for number in numbers):
        limit //= 2
    return limit


def _as(tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """An alias of the tensor's address with another element type; only its address and type are used."""
    return torch.empty(0, dtype=dtype, device=tensor.device).set_(
        tensor.untyped_storage(),
        tensor.storage_offset() * tensor.element_size() // dtype.itemsize,
        (1,),
    )
