"""Do both engines compute alike? Only then can one's answers be held against the other's bit for bit."""

from __future__ import annotations

from collections.abc import Mapping

from e2e.judge.view import CellView

#: What both engines must have in common. ``threads``: on a CPU sums are split over threads, and vLLM reserves one core
#: more for an engine with a connector; on two cores that alone moved logprobs by 4e-5 (float32).
SHARED = (
    "layout", "block_size", "attention_backend", "dtype", "num_layers", "versions", "max_num_batched_tokens", "threads",
    "gpu", "batch_invariant", "tensor_parallel", "ranks",
)  # fmt: skip
#: vLLM 0.29+ names layouts by their order of axes (L, B, H, N, C).
ALIASES = {"LBNHC": "NHD", "LBHNC": "HND"}


def plain(value: object) -> object:
    """One spelling for layouts, switches and numbers: ``LBNHC`` is NHD, True is on, ``16`` is 16."""
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, (int, float, str)):
        text = str(value)
        return ALIASES.get(text.upper(), text)
    return value


def disagreements(view: CellView) -> Mapping[str, tuple[object, object]]:
    """Setting -> (connector engine's, baseline engine's), where both are known and differ."""
    if view.baseline is None:
        return {}
    mine, theirs = view.connector.effective or {}, view.baseline.effective or {}
    return {
        name: (mine[name], theirs[name])
        for name in SHARED
        if name in mine and name in theirs and plain(mine[name]) != plain(theirs[name])
    }
