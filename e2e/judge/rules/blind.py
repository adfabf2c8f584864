"""With --strict, a cell that can't see a class of fault is no evidence of its absence, and a run that left stories
untold is none either."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from e2e.base.program import Computed
from e2e.base.verdict import Finding, Reason
from e2e.judge import compare
from e2e.judge.rules import digests
from e2e.judge.view import CellView, Sent, Side

RULE = "blind"


def check(view: CellView) -> list[Finding]:
    if not view.strict:
        return []
    left = [Finding(RULE, Reason.NOT_TRIED, {"scenarios": list(view.plan.untold)})] if view.plan.untold else []
    return [*(Finding(RULE, Reason.BLIND_CELL, spot) for spot in spots(view)), *left]


def spots(view: CellView) -> tuple[Mapping[str, object], ...]:
    """What the plan said that this cell can't see, and what several requests at once hid, or kernels that don't repeat
    themselves."""
    hidden = [h for side in view.connectors for prompt in view.prompts for h in _hidden(view, side, prompt)]
    if not hidden:
        return view.plan.blind
    loads = [(sent, prompt) for sent in view.external for prompt in sent.send.texts if sent.answer(prompt)]
    exact = "load exact by digests; " if loads and all(digests.vouch(view, *load) for load in loads) else ""
    whys = [f"{exact}first answer not comparable: {why}" for why in dict.fromkeys(hidden)]
    return (*view.plan.blind, *({"fault_class": "first answer", "why": why} for why in whys))


def _hidden(view: CellView, side: Side, prompt: int) -> Iterator[str]:
    """Why nothing that an engine with the connector said of a prompt, with the same adapter, before anything was loaded
    was compared with what a plain one says."""
    fresh = [sent for sent in view.sent if sent.side is side and sent.fresh and sent.answer(prompt) is not None]
    for lora in dict.fromkeys(sent.send.lora for sent in fresh):
        sends = [sent for sent in fresh if sent.send.lora == lora]
        asked = [sent for sent in sends if _plain(view, sent)]
        if any(_compared(view, sent, prompt) for sent in sends):
            continue
        if any(not sent.alone for sent in asked):
            yield "several requests at once shared its steps"
        elif any(not compare.repeats(sent) for sent in asked):
            yield "kernels of adapters do not repeat themselves on a GPU, but in batch-invariant mode"


def _compared(view: CellView, sent: Sent, prompt: int) -> bool:
    by_bytes = [claim.step for claim in sent.send.claims if isinstance(claim, Computed)]
    if any(digests.alike(view, sent.send.where, step, prompt) for step in by_bytes):
        return True
    return any(compare.comparable(view, sent, other, prompt) for other in _plain(view, sent))


def _plain(view: CellView, sent: Sent) -> list[Sent]:
    named = [view.of(where) for where in sent.send.like]
    return [other for other in named if other is not None and not other.side.site.connector]
