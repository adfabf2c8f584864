"""``Happened``: what a Send is to provoke was seen; else it shows nothing about it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from math import ceil

from e2e.base.program import Happened
from e2e.base.verdict import Finding, Reason
from e2e.judge import compare
from e2e.judge.view import CellView, Sent

RULE = "happened"


def check(view: CellView) -> list[Finding]:
    findings = []
    for sent in view.sent:
        for claim in sent.send.claims:
            if isinstance(claim, Happened) and (found := _times(view, sent, claim.what)) < claim.least:
                seen = {**sent.place, "what": claim.what, "expected": claim.least, "found": found}
                findings.append(Finding(RULE, Reason.SCENARIO_DID_NOT_HAPPEN, seen))
    return findings


def _times(view: CellView, sent: Sent, what: str) -> int:
    arm, seen = sent.arm, SEEN[what](view, sent) if what in SEEN else 0
    return max(arm.counter(what) or 0, arm.connector_total(what), arm.seen.get(what, 0), seen)


def _resumed_loads(view: CellView, sent: Sent) -> int:
    """Loads of a request behind its first one, as the connector journals them: it was preempted, and came back."""
    return max((_beyond_first(told["loads"] or ()) for told in sent.arm.evidence), default=0)


def _beyond_first(loads: Iterable[Mapping[str, object]]) -> int:
    return sum(times - 1 for times in Counter(str(load["request"]) for load in loads).values())


def _reads_in_one_step(view: CellView, sent: Sent) -> int:
    """The most requests of which one step read what was there before, by their digests."""
    reads = Counter(
        (rank, digest.step)
        for prompt in sent.send.texts
        for (_, _, rank), digest in view.table.all(sent.send.where, "read", prompt).items()
        if digest.step is not None
    )
    return max(reads.values(), default=0)


def _prefill_steps(view: CellView, sent: Sent) -> int:
    """Steps that the prompts can't have done without, by what the engine says of their size; only where they came one
    at a time."""
    step = (sent.side.effective or {}).get("max_num_batched_tokens")
    if step is None or not sent.alone:
        return 0
    served = {prompt: compare.served(view, sent, prompt) for prompt in sent.arm.answers}
    lengths = {prompt: hit.tokens for prompt, hit in sent.arm.expected.items()}
    known = [lengths[prompt] - tokens for prompt, tokens in served.items() if tokens is not None and prompt in lengths]
    return sum(ceil(computed / int(step)) for computed in known)


def _batch(view: CellView, sent: Sent) -> int:
    """The most requests of which a step computed some that read, for one of them, what was there before."""
    reads = (view.table.all(sent.send.where, "read", prompt).values() for prompt in sent.send.texts)
    return max((digest.batch or 0 for found in reads for digest in found), default=0)


#: What nobody counts, seen in what was recorded of a Send.
SEEN: Mapping[str, Callable[[CellView, Sent], int]] = {
    "answered": lambda view, sent: len(sent.arm.answers),
    "local": lambda view, sent: sent.arm.local or 0,
    "external": lambda view, sent: sent.arm.external or 0,
    "prefill_steps": _prefill_steps,
    "resumed_loads": _resumed_loads,
    "reads_in_one_step": _reads_in_one_step,
    "batch": _batch,
}
