"""A connector that is lossy by declaration: by how much what it served differs from what was computed is said in place
of a verdict. Until something was loaded it is held to the bit, as everybody is."""

from __future__ import annotations

import numpy as np

from e2e.base.judgement import Oracle
from e2e.base.verdict import Finding, Reason
from e2e.judge.contents import values
from e2e.judge.kv import Sample
from e2e.judge.view import CellView

RULE = "lossy"
#: What loss does.
_OF_LOSS = (Reason.TOKENS_DIFFER, Reason.LOGPROBS_DIFFER, Reason.BEYOND_NOISE, Reason.DIGEST_DIFFERS)
#: What it looks like, see classify.py. Any other pattern was moved, mixed up or not written.
_PATTERNS = ("unknown", "bit_flips", "reinterpreted")

#: A page that is off by more, against its largest value, holds something else: int4 is off by 7 %, fp8 by 6 %.
_MOST = 0.5
_FLOATS = ("float32", "float16", "bfloat16")


def measured(view: CellView, findings: list[Finding], oracle: Oracle) -> list[Finding]:
    """``findings`` with those of loss replaced by one that says how much it is; unchanged for a connector that declared
    none, and where what was served is something else than a little off."""
    if not view.plan.lossy:
        return findings
    served = {(sent.side.name, sent.send.name) for sent in view.sent if not sent.fresh}
    of_loss = [
        finding
        for finding in findings
        if finding.reason in _OF_LOSS and (finding.evidence.get("engine"), finding.evidence.get("arm")) in served
    ]
    pages = [finding.evidence for finding in of_loss if finding.reason is Reason.DIGEST_DIFFERS]
    off = max((_off(sample) for sample in _samples(view, served)), default=None)
    if any(seen.get("pattern") not in _PATTERNS for seen in pages) or (off is not None and off > _MOST):
        return findings
    seen = {
        "page_off": off,
        "max_logprob_diff": oracle.max_logprob_diff,
        "tokens_equal": oracle.tokens_equal,
        "wrong_share": max((seen["wrong_share"] for seen in pages), default=0.0) if view.plan.digests else None,
    }
    rest = [finding for finding in findings if finding not in of_loss]
    return [*rest, Finding(RULE, Reason.LOSSY_BY_DECLARATION, seen)]


def _samples(view: CellView, served: set[tuple[str, str]]) -> list[Sample]:
    found = [digest.sample for (site, arm, *_), digest in view.table.found.items() if (site, arm) in served]
    return [sample for sample in found if sample is not None and sample.dtype in _FLOATS]


def _off(sample: Sample) -> float:
    """By how much a page is off, against its largest value; infinite where it holds no number."""
    before, after = (values(page, sample.dtype).astype(float) for page in (sample.expected, sample.found))
    if not np.isfinite(after).all():
        return float("inf")
    return float(np.abs(after - before).max() / max(np.abs(before).max(), np.finfo(np.float32).tiny))
