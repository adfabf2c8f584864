"""Every planted fault that the embedded connector knows, by the names of ``e2e/inside/faults`` (a test compares them).

``applies`` answers for one cell without an engine. Classes A to G: docs/faults.md#classes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from e2e.base.cell import Cell
from e2e.base.errors import SettingsError
from e2e.base.fault import parted
from e2e.base.spelling import hint


@dataclass(frozen=True)
class Shape:
    """What a fault's effect depends on. ``packed``: K and V in one head-first page (base/kv_form.py), else rank
    5. ``kv_heads``: of the model, shared by its ranks. ``served_chunks``: of the longest load. ``prompts``: per arm."""

    packed: bool
    kv_heads: int
    layers: int
    block_size: int
    chunk_tokens: int
    served_chunks: int
    prompts: int


Applies = Callable[[Cell, Shape], "str | None"]


@dataclass(frozen=True)
class FaultInfo:
    """``patterns``: names of ``judge/classify`` that locate it right. ``around_any``: can be planted around any
    connector (``rig_plant``). ``scenarios``: those that provoke what it needs; none: any does."""

    name: str
    what: str
    stands_for: str
    patterns: tuple[str, ...]
    applies: Applies
    around_any: bool = False
    scenarios: tuple[str, ...] = ()

    def why_not(self, cell: Cell, shape: Shape) -> str | None:
        """Why it can't act in this cell, as one sentence, or None."""
        ranks, rank = int(cell.get("tensor_parallel", 1)), parted(str(cell.get("fault", self.name)))[1]
        if rank is not None and rank >= ranks:
            return f"There is no rank {rank}: tensor_parallel is {ranks}."
        if self.scenarios and cell.get("scenario", "replay") not in self.scenarios:
            return f"Nothing in this story provokes it; tell it with --scenario {' or '.join(self.scenarios)}."
        return self.applies(cell, replace(shape, kv_heads=max(shape.kv_heads // ranks, 1)))


def _always(cell: Cell, shape: Shape) -> str | None:
    return None


def _kernel_on(layout_packed: str, layout_rank5: str) -> Applies:
    def applies(cell: Cell, shape: Shape) -> str | None:
        struck = layout_packed if shape.packed else layout_rank5
        if cell.get("placement") == "index":
            return "It is a fault of the kernel placement, and this cell places by index."
        if cell.get("overlap") != "on":
            return "Without overlap the multi-layer kernel places all; it is told its geometry and reads no shape."
        if cell.get("layout") != struck:
            return f"It strikes {struck} only: under {cell.get('layout')} the view that is passed is the right one."
        return _axes(cell, shape)

    return applies


def _axes(cell: Cell, shape: Shape) -> str | None:
    if shape.kv_heads == 1 or shape.block_size == 1:
        return "With one KV head or one token a block both orders are the same bytes."
    if shape.kv_heads == shape.block_size:
        return "A block has as many tokens as there are KV heads, so the sizes look right when they are swapped."
    return None


def _index_axes(cell: Cell, shape: Shape) -> str | None:
    if cell.get("placement") != "index":
        return "It is a fault of index placement, and this cell places by a kernel."
    one = shape.kv_heads == 1 or shape.block_size == 1
    return "With one KV head or one token a block both orders are the same bytes." if one else None


def _strided(cell: Cell, shape: Shape) -> str | None:
    strided = "NHD" if shape.packed else "HND"
    if cell.get("layout") in ("NHD", "HND") and cell.get("layout") != strided:
        return f"Under {cell.get('layout')} the registered tensor is contiguous, so a reshape of it is no copy."
    return None


def _overlap(cell: Cell, shape: Shape) -> str | None:
    return None if cell.get("overlap") == "on" else "It needs overlap: without it a load is complete when reported."


def _layouts(cell: Cell, shape: Shape) -> str | None:
    return None if cell.get("layout") in ("NHD", "HND") else "The connector has no layouts that could differ."


def _heads(cell: Cell, shape: Shape) -> str | None:
    return None if shape.kv_heads > 1 else "There is one KV head, and nothing to permute."


def _layers(cell: Cell, shape: Shape) -> str | None:
    return None if shape.layers > 1 else "The model has one layer."


def _chunks(cell: Cell, shape: Shape) -> str | None:
    return None if shape.served_chunks > 1 else "No prompt has more than one chunk served."


def _other_prompts(cell: Cell, shape: Shape) -> str | None:
    return None if shape.prompts > 1 else "There is one prompt, so no object of another one."


FAULTS: dict[str, FaultInfo] = {
    fault.name: fault
    for fault in (
        FaultInfo(
            "physical_view_omitted", "the kernel gets the tensor as registered, not in physical order",
            "class A, maru 86: head count and page size swapped", ("axes_swapped", "not_written"),
            _kernel_on("NHD", "HND"),
        ),
        FaultInfo(
            "token_first_view", "the kernel gets the token-first view of the original report",
            "class A, maru 86 as reported", ("axes_swapped", "not_written"), _kernel_on("HND", "HND"),
        ),
        FaultInfo(
            "axes_swapped_index", "index placement takes a page for [heads, tokens]", "class A, axes swapped",
            ("axes_swapped",), _index_axes,
        ),
        FaultInfo(
            "write_into_copy", "a reshape of a strided view is a copy, and that is written", "class A, lost writes",
            ("not_written",), _strided,
        ),
        FaultInfo("kv_swapped", "keys where values belong", "class A, LMCache 4463", ("kv_swapped",), _always,
                  around_any=True),
        FaultInfo("neighbour_layer", "one layer gets the next one's bytes", "class A, wrong pitched-copy offset",
                  ("neighbour_layer",), _layers),
        FaultInfo("layer_order_shifted", "every layer gets the one before it",
                  "class A, stage-local layer index under pipeline parallelism", ("neighbour_layer",), _layers),
        FaultInfo("one_slot_off", "every token lies one slot too early", "class A, slot mapping off by one",
                  ("shifted_by_n_slots",), _always),
        FaultInfo("one_chunk_off", "every chunk lies one chunk too late", "class A, offset counted in chunks",
                  ("shifted_by_n_slots",), _chunks),
        FaultInfo("tail_dropped", "the last half of the last chunk is not written",
                  "class E, tail rules of writer and reader differ", ("truncated_tail",), _always),
        FaultInfo("layer_never_loaded", "one layer is reported loaded, and is not", "class C, one layer missing",
                  ("not_written",), _layers),
        FaultInfo("overlap_not_waited", "an overlapped load is reported complete and never waited for",
                  "class B, load reported done before the copy landed", ("not_written",), _overlap),
        FaultInfo("stale_object", "the first chunk is another prompt's", "class B and D, stale object under the key",
                  ("stale",), _other_prompts),
        FaultInfo("equal_length_prompt", "every chunk is that of a prompt of equal length up to there",
                  "class D, KV of another request served", ("stale",), _other_prompts),
        FaultInfo("heads_permuted", "heads rotated by one", "class A, heads permuted across ranks",
                  ("heads_permuted",), _heads, around_any=True),
        FaultInfo("bit_flip", "the lowest bit of one element of one layer", "memory or link error",
                  ("bit_flips",), _always, around_any=True),
        FaultInfo("read_as_fp16", "bfloat16 bytes read as float16", "class A, dtype of the wrong configuration",
                  ("reinterpreted",), _always, around_any=True),
        FaultInfo("scale_lost", "one layer comes back at half its size", "class A, vLLM 48412",
                  ("reinterpreted",), _always, around_any=True),
        FaultInfo("zero_layer", "one layer comes back as zeros", "class C, a transfer that never wrote its buffer",
                  ("zeros",), _always, around_any=True),
        FaultInfo("store_before_forward", "a chunk is stored before its forward wrote the blocks",
                  "class B, store races compute", ("not_written", "zeros", "stale", "unknown"), _always),
        FaultInfo("failed_load_swallowed", "the first chunk vanished, and the load is reported good",
                  "class C, object vanished between lookup and load", ("not_written", "truncated_tail"), _always),
        FaultInfo("store_writes_cache", "storing changes the live cache",
                  "class A, vLLM 48412: the first answer is already wrong",
                  ("bit_flips", "reinterpreted", "unknown"), _always),
        FaultInfo("loads_exchanged", "two loads of one step go into each other's blocks",
                  "class A, one slot mapping for a whole batch", ("stale", "unknown"), _always,
                  scenarios=("crowd", "preemption")),
        FaultInfo("former_blocks", "a resumed request loads into the blocks that it had before",
                  "class B, a block table that nobody renewed", ("not_written", "stale", "unknown"),
                  _always, scenarios=("preemption",)),
        FaultInfo("region_not_kept", "stored chunks lie in the engine's own memory, the index tells everybody of them",
                  "class B, an index entry without its bytes", ("zeros", "unknown"), _always,
                  scenarios=("restart", "second")),
        FaultInfo("layout_not_in_key", "pages are stored as they lie, under a key without their layout",
                  "class D, another engine's layout", ("axes_swapped", "unknown"), _layouts, scenarios=("second",)),
        FaultInfo("heads_permuted_both_ways", "index placement rotates heads when it stores and back when it loads",
                  "class A, a store and a load that share one mistake", ("heads_permuted",), _heads,
                  scenarios=("cross",)),
    )
}  # fmt: skip


def find(name: str) -> FaultInfo:
    """The fault of this name, whatever rank it names. SettingsError, one sentence, for an unknown one."""
    if (fault := parted(name)[0]) in FAULTS:
        return FAULTS[fault]
    if any(part.strip() in FAULTS for part in name.split(",")):
        raise SettingsError(f"fault {name!r} is no single name; give --fault once for each.")
    raise SettingsError(f"fault {name!r} is unknown; {hint(name, sorted(FAULTS))}")
