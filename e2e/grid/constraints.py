"""Combinations of values that mean nothing, each with its reason. What one connector can't do is its adapter's."""

from __future__ import annotations

from collections.abc import Callable, Mapping

Settings = Mapping[str, str | int]


def _overlap_needs_async(cell: Settings) -> str | None:
    if cell.get("overlap") == "on" and cell.get("load") == "sync":
        return "overlap=on needs load=async: layers can land behind the compute only when the load runs beside it."
    return None


def _release_needs_overlap(cell: Settings) -> str | None:
    if "release_after_layers" in cell and cell.get("overlap") != "on":
        return "release_after_layers has a meaning only with overlap=on: without it all layers land first."
    return None


def _chunks_are_whole_blocks(cell: Settings) -> str | None:
    chunk, block = cell.get("chunk_tokens"), cell.get("block_size")
    if isinstance(chunk, int) and isinstance(block, int) and chunk % block:
        return f"chunk_tokens={chunk} is no multiple of block_size={block}, so chunks would end inside a block."
    return None


def _float32_has_no_fp8_cache(cell: Settings) -> str | None:
    if cell.get("dtype") == "float32" and str(cell.get("kv_cache_dtype", "auto")).startswith("fp8"):
        return "kv_cache_dtype=fp8 goes with dtype=bfloat16 or float16: no attention backend mixes it with float32."
    return None


RULES: tuple[Callable[[Settings], str | None], ...] = (
    _overlap_needs_async,
    _release_needs_overlap,
    _chunks_are_whole_blocks,
    _float32_has_no_fp8_cache,
)


def why_invalid(settings: Settings) -> str | None:
    """The first reason why this combination can't be run, or None. ``settings`` holds every axis that applies."""
    return next(filter(None, (rule(settings) for rule in RULES)), None)
