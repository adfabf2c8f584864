"""Where a planted fault can act: a cell and its shape -> why it can't, as one sentence, or None."""

from __future__ import annotations

from e2e.base.cell import Cell
from e2e.faults.info import Applies, Shape


def always(cell: Cell, shape: Shape) -> str | None:
    return None


def kernel_on(layout_packed: str, layout_rank5: str) -> Applies:
    def applies(cell: Cell, shape: Shape) -> str | None:
        struck = layout_packed if shape.packed else layout_rank5
        if cell.get("placement") == "index":
            return "It is a fault of the kernel placement, and this cell places by index."
        if cell.get("overlap") != "on":
            return "Without overlap the multi-layer kernel places all; it is told its geometry and reads no shape."
        if cell.get("layout") != struck:
            return f"It strikes {struck} only: under {cell.get('layout')} the view that is passed is the right one."
        return axes(cell, shape)

    return applies


def axes(cell: Cell, shape: Shape) -> str | None:
    if shape.kv_heads == 1 or shape.block_size == 1:
        return "With one KV head or one token a block both orders are the same bytes."
    if shape.kv_heads == shape.block_size:
        return "A block has as many tokens as there are KV heads, so the sizes look right when they are swapped."
    return None


def index_axes(cell: Cell, shape: Shape) -> str | None:
    if cell.get("placement") != "index":
        return "It is a fault of index placement, and this cell places by a kernel."
    one = shape.kv_heads == 1 or shape.block_size == 1
    return "With one KV head or one token a block both orders are the same bytes." if one else None


def strided(cell: Cell, shape: Shape) -> str | None:
    strided = "NHD" if shape.packed else "HND"
    if cell.get("layout") in ("NHD", "HND") and cell.get("layout") != strided:
        return f"Under {cell.get('layout')} the registered tensor is contiguous, so a reshape of it is no copy."
    return None


def overlap(cell: Cell, shape: Shape) -> str | None:
    return None if cell.get("overlap") == "on" else "It needs overlap: without it a load is complete when reported."


def two_bytes(cell: Cell, shape: Shape) -> str | None:
    wide = cell.get("dtype") == "float32"
    return "float32 has no other dtype of its size, so that a load fails as it should." if wide else None


def no_overlap(cell: Cell, shape: Shape) -> str | None:
    return "An overlapped load keeps blocks itself." if cell.get("overlap") == "on" else None


def layouts(cell: Cell, shape: Shape) -> str | None:
    return None if cell.get("layout") in ("NHD", "HND") else "The connector has no layouts that could differ."


def heads(cell: Cell, shape: Shape) -> str | None:
    return None if shape.kv_heads > 1 else "There is one KV head, and nothing to permute."


def layers(cell: Cell, shape: Shape) -> str | None:
    return None if shape.layers > 1 else "The model has one layer."


def chunks(cell: Cell, shape: Shape) -> str | None:
    return None if shape.served_chunks > 1 else "No prompt has more than one chunk served."


def other_prompts(cell: Cell, shape: Shape) -> str | None:
    return None if shape.prompts > 1 else "There is one prompt, so no object of another one."


def answer(tokens: int) -> Applies:
    def applies(cell: Cell, shape: Shape) -> str | None:
        if shape.answer >= tokens:
            return None
        return f"No answer after a load has {tokens} tokens; ask for --max-tokens {tokens}, or for another story."

    return applies


def several_tokens(cell: Cell, shape: Shape) -> str | None:
    return None if shape.block_size > 1 else "A block holds one token."


def several_blocks(cell: Cell, shape: Shape) -> str | None:
    served = shape.served_chunks * shape.chunk_tokens
    return several_tokens(cell, shape) or (None if served >= 2 * shape.block_size else "One block is served.")


def ranks(cell: Cell, shape: Shape) -> str | None:
    return None if int(cell.get("tensor_parallel", 1)) > 1 else "There is one rank; try --cell tensor_parallel=2."


def both(*conditions: Applies) -> Applies:
    """The first of several reasons."""
    return lambda cell, shape: next(filter(None, (why(cell, shape) for why in conditions)), None)
