"""Our own placement kernel: every address is computed from strides, so there is no layout that it could misread.

One launch moves all layers. Rows of D elements (one token, head, K or V) are copied as words: the widest integers that
sizes, strides and addresses allow, paired to 16-byte accesses by the compiler where they can be. Layers are found
through a table of addresses on the device, kept per set of layers; the staging is addressed by its strides, so that
[L,2,T,H,D], [2,L,T,H,D] and token-major [L,T,2,H,D] buffers all do.

Memory order of the loop: programs are (tile of (token, head) rows) x layer; each moves K and V of its rows.

Where a request is small, what the host does before the launch is what counts. So a call like one before is launched
through the compiled kernel itself, past Triton's own look-up: all that this look-up would find (types, constants,
alignment) is in the key of what is remembered.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch

from e2e.inside.geometry import PagedLayer
from e2e.inside.placement.base import Unavailable, check_call, check_layers

try:
    import triton
    import triton.language as tl
except Exception as error:  # a broken Triton raises more than ImportError
    raise Unavailable(f"placement triton needs the triton package, which can't be imported here: {error}.") from error


def _move(
    staged, table, slots, rows: tl.int64, staged_l: tl.int64, staged_kv: tl.int64, staged_t: tl.int64,
    staged_h: tl.int64, paged_b: tl.int64, paged_kv: tl.int64, paged_n: tl.int64, paged_h: tl.int64,
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
#: Of the addresses, only that of the staging must be known to be aligned: the others are read entry by entry.
_ENTRIES = ["table", "slots"]


@cache
def _compiled():
    return triton.jit(_move, do_not_specialize=_PLAIN, do_not_specialize_on_alignment=_ENTRIES)


@cache
def _interpreted():
    from triton.runtime.interpreter import InterpretedFunction

    return InterpretedFunction(_move)


_WORDS = {8: torch.int64, 4: torch.int32, 2: torch.int16, 1: torch.uint8}
#: Bytes of K that one program moves (as many of V), and its warps: the best or near it at every shape that was timed.
_TILE_BYTES, _WARPS = 4096, 4
#: Calls and plans whose preparation is kept.
_REMEMBERED = 512


@dataclass(frozen=True)
class _Plan:
    """All that a launch needs to know of a set of layers. ``align``: bytes that divide every address and stride."""

    table: torch.Tensor
    address: int
    align: int
    first: PagedLayer
    geometry: tuple


@dataclass(frozen=True)
class _Call:
    """All that a launch needs to know of its arguments but their addresses. ``rest``: the arguments after these;
    ``kernel``: all that one is compiled for."""

    word: torch.dtype
    grid: tuple[int, int, int]
    rest: tuple[int, ...]
    kernel: tuple


class Triton:
    name = "triton"

    def __init__(self) -> None:
        self._plans: OrderedDict[tuple[PagedLayer, ...], _Plan] = OrderedDict()
        self._calls: OrderedDict[tuple, _Call] = OrderedDict()
        self._kernels: dict[tuple, Any] = {}

    def scatter(self, staged: torch.Tensor, layers: Sequence[PagedLayer], slots: torch.Tensor) -> int:
        return self._launch(staged, layers, slots, gather=False)

    def gather(self, layers: Sequence[PagedLayer], slots: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
        self._launch(out, layers, slots, gather=True)
        return out

    def _launch(self, staged: torch.Tensor, layers: Sequence[PagedLayer], slots: torch.Tensor, *, gather: bool) -> int:
        plan = self._plan(tuple(layers))
        slots = slots.contiguous()
        at = staged.data_ptr()
        key = (
            plan.geometry, plan.align, at % 16, staged.shape, staged.stride(), staged.dtype, staged.device,
            slots.shape, slots.dtype, slots.device, gather,
        )  # fmt: skip
        call = self._calls.get(key) or self._remember(self._calls, key, self._call(plan, staged, slots, gather=gather))
        if not call.grid[0]:
            return 0
        if not staged.is_cuda:
            _interpreted()[call.grid](_as(staged, call.word), plan.table, slots, *call.rest)
            return 1
        kernel = self._kernels.get(call.kernel)
        if kernel is None:
            self._kernels[call.kernel] = _compiled()[call.grid](
                _as(staged, call.word), plan.table, slots, *call.rest, num_warps=_WARPS
            )
        else:
            kernel[call.grid](at, plan.address, slots.data_ptr(), *call.rest)
        return 1

    def _plan(self, layers: tuple[PagedLayer, ...]) -> _Plan:
        plan = self._plans.get(layers)
        if plan is None:
            first = check_layers(layers)
            item = first.dtype.itemsize
            addresses = [layer.registered.data_ptr() for layer in layers]
            align = _common(16, *addresses, first.head_size * item, *(step * item for step in _steps(first)))
            # a copy from pageable memory is over when it returns, so any stream may read the table
            table = torch.tensor(addresses, dtype=torch.int64).to(first.device)
            geometry = (len(layers), first.logical.shape, first.logical.stride(), first.dtype, first.device)
            plan = _Plan(table, table.data_ptr(), align, first, geometry)
            self._remember(self._plans, layers, plan)
        return plan

    def _call(self, plan: _Plan, staged: torch.Tensor, slots: torch.Tensor, *, gather: bool) -> _Call:
        first, layers = plan.first, plan.table.numel()
        check_call(staged, first, layers, slots)
        rows = slots.numel() * first.heads
        item = staged.element_size()
        align = _common(plan.align, staged.data_ptr(), *(step * item for step in staged.stride()[:4]))
        width = min(align, 8)
        per = width // item
        row = first.head_size // per
        padded = triton.next_power_of_2(row)
        tile = max(1, min(_TILE_BYTES // (padded * width), triton.next_power_of_2(rows)))
        strides = [step // per for step in (*staged.stride()[:4], *_steps(first))]
        constants = (first.heads, first.block_size, row, padded, tile, align // width, align, gather)
        return _Call(
            _WORDS[width], (triton.cdiv(rows, tile), layers, 1), (rows, *strides, *constants),
            (staged.device, width, staged.data_ptr() % 16 == 0, *constants),
        )  # fmt: skip

    def _remember(self, where: OrderedDict, key: tuple, value):
        where[key] = value
        if len(where) > _REMEMBERED:
            where.popitem(last=False)
        return value


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
