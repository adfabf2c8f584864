"""Do two engines compute alike? Only then can one's answers be held against the other's bit for bit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from e2e.base.program import Send, Site
from e2e.judge.view import CellView, Side

#: What both engines must have in common. ``threads``: on a CPU sums are split over threads, and vLLM reserves one core
#: more for an engine with a connector; on two cores that alone moved logprobs by 4e-5 (float32). ``arithmetic``: a name
#: for engines in use that were seen to compute alike, since they don't tell the rest.
SHARED = (
    "layout", "block_size", "attention_backend", "dtype", "num_layers", "versions", "max_num_batched_tokens", "threads",
    "gpu", "batch_invariant", "tensor_parallel", "ranks", "arithmetic",
)  # fmt: skip
#: Settings of an engine as opposed to those of a load, see ``rules/loads.py``.
OF_ENGINE = ("layout", "block_size", "attention_backend", "dtype", "kv_cache_dtype", "tensor_parallel")
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


def asked(view: CellView, of: Site | Send, axes: Sequence[str]) -> dict[str, object]:
    """What was asked for of one site, or with one Send, as far as it can be checked."""
    site = view.program.site(of.site) if isinstance(of, Send) else of
    differs = {**site.settings, **of.settings}
    own = {axis: value for axis, value in differs.items() if axis in view.plan.expect or axis in OF_ENGINE}
    expect = {**view.plan.expect, **own}
    return {axis: expect[axis] for axis in axes if axis in expect}


def disagreements(mine: Side, theirs: Side) -> Mapping[str, tuple[object, object]]:
    """Setting -> (one engine's, the other's), where both are known and differ."""
    one, other = mine.effective or {}, theirs.effective or {}
    return {
        name: (one[name], other[name])
        for name in SHARED
        if name in one and name in other and plain(one[name]) != plain(other[name])
    }


def references(view: CellView, side: Side) -> list[Side]:
    """The plain sites whose answers this one's must be like."""
    named = {where[0] for send in view.program.sends if send.site == side.name for where in send.like}
    return [other for other in view.sides.values() if not other.site.connector and other.name in named - {side.name}]
