"""``Like``: answers that computed the same steps are equal bit for bit, tokens and logprobs."""

from __future__ import annotations

from collections.abc import Iterator

from e2e.base.verdict import Finding, Reason
from e2e.judge import compare
from e2e.judge.view import CellView, Sent

RULE = "exact"


def check(view: CellView) -> list[Finding]:
    findings: list[Finding] = []
    for sent in view.sent:
        for prompt in sent.send.texts:
            if sent.send.like:
                findings.extend(each for each in _answer(view, sent, prompt) if each not in findings)
    return findings


def _answer(view: CellView, sent: Sent, prompt: int) -> Iterator[Finding]:
    """At most one finding, against the first reference that differs: one difference is enough, more of them only
    repeat it."""
    shaken = compare.unstable(view, sent, prompt)
    if shaken is not None:
        reference, repeated, difference = shaken
        seen = compare.evidence(difference, prompt=prompt, sent=repeated, reference=reference)
        yield Finding(RULE, Reason.UNSTABLE_REFERENCE, seen)
        return
    if sent.answer(prompt) is None:
        return
    for reference in compare.exact_references(view, sent, prompt):
        expected, found = compare.answers(reference, sent, prompt)
        if bool(expected.top) != bool(found.top):
            yield Finding(RULE, Reason.ANSWER_INCOMPLETE, {"prompt": prompt, **sent.place, "what": "top logprobs"})
            return
        difference = compare.first_difference(expected, found)
        if difference is not None:
            seen = compare.evidence(difference, prompt=prompt, sent=sent, reference=reference)
            by_kind = Reason.TOKENS_DIFFER if difference.kind == "tokens" else Reason.LOGPROBS_DIFFER
            yield Finding(RULE, compare.why(sent, reference, by_kind), seen)
            return
