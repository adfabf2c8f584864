"""``Like``, where nothing computed the same steps: the first differing token must be a near tie within the noise of the
plain engine that is named.

Noise is the largest difference of logprobs that the plain engine shows between its own answers to one prompt, up to and
with the first differing token, over pairs that need not be equal. A tie may lean by twice that: both logits move.
An engine in use has no plain one beside it: it is held against answers of engines in use to which nothing had been
loaded, and its noise was measured beforehand, over many of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

from e2e.base.program import Computed, Loaded
from e2e.base.verdict import Finding, Reason
from e2e.judge import compare
from e2e.judge.rules import digests
from e2e.judge.view import Answer, CellView, Sent

RULE = "coarse"
#: One step of a bfloat16 logit between 16 and 32: what the smallest rounding moves, whatever the noise sample shows.
LOGIT_STEP = 0.125


def check(view: CellView) -> list[Finding]:
    findings = []
    for sent in view.sent:
        if not sent.side.site.connector:
            continue
        allowed = noise(view, sent)
        for prompt in sent.send.texts:
            if sent.answer(prompt) is None:
                continue
            shaken = compare.unstable(view, sent, prompt) is not None
            exact = [] if shaken else compare.exact_references(view, sent, prompt)
            beyond = None
            if allowed is not None and not any(map(_is_reference, exact)):
                beyond = _beyond(view, sent, prompt, allowed)
            if beyond is not None:
                findings.append(Finding(RULE, Reason.BEYOND_NOISE, beyond))
            coarse = sent.side.site.in_use and allowed is not None and _references(view, sent, prompt)
            must = _must_be_shown(view, sent, prompt) and not coarse
            if not exact and must and not digests.vouch(view, sent, prompt):
                seen = {"prompt": prompt, **view.place(sent), "noise": allowed}
                findings.append(Finding(RULE, Reason.NO_EXACT_REFERENCE, seen))
    return findings


def _must_be_shown(view: CellView, sent: Sent, prompt: int) -> bool:
    """What was loaded, and what only digests could show where there are none. A load that was to fail, and whose
    failure was told, is none."""
    if sent.asked_for("load_failures") and digests.failed(view, sent, prompt):
        return False
    by_digests = sent.send.claim(Loaded) or sent.send.claim(Computed)
    return sent.send.external or (by_digests is not None and not sent.send.like and not view.plan.digests)


def noise(view: CellView, sent: Sent) -> float | None:
    """Largest logprob difference within the plain engine that ``sent`` must be like, or None when its answers show
    none: pairs that computed the same steps, or that came one at a time, may be equal and yet say nothing about other
    steps."""
    named = {site for site, _ in sent.send.like}
    found = [other for other in view.sent if other.side.name in named and _is_reference(other) and other is not sent]
    seen = of_pairs(view, found)
    if sent.side.site.in_use and view.plan.noise is not None:
        return max([view.plan.noise, *seen])
    return max(seen, default=0.0) or None


def of_pairs(view: CellView, sent: Sequence[Sent]) -> list[float]:
    """Of two answers of one engine to one prompt each."""
    seen = []
    for one, other in combinations(sent, 2):
        for prompt in {*one.send.texts} & {*other.send.texts}:
            answers = compare.answers(one, other, prompt)
            if one.side is not other.side or None in answers:
                continue
            repeats = compare.comparable(view, one, other, prompt)
            if not repeats or compare.first_difference(*answers) is not None:
                seen.append(_common_noise(*answers))
    return seen


def _is_reference(sent: Sent) -> bool:
    return not sent.side.site.connector or (sent.side.site.in_use and sent.fresh)


def _references(view: CellView, sent: Sent, prompt: int) -> list[Sent]:
    return [other for other in compare.references(view, sent, prompt) if _is_reference(other)]


def _common_noise(a: Answer, b: Answer) -> float:
    """Over the positions at which both had seen the same tokens."""
    end = _fork(a, b)
    diffs = [abs(x - y) for x, y in zip(a.logprobs[:end], b.logprobs[:end], strict=True)]
    for x, y in zip(a.top[: end + 1], b.top[: end + 1], strict=False):
        diffs.extend(abs(x[token] - y[token]) for token in x.keys() & y.keys())
    return max(diffs, default=0.0)


def _fork(a: Answer, b: Answer) -> int:
    """First position with different tokens, or the length of the shorter answer."""
    pairs = zip(a.tokens, b.tokens, strict=False)
    return next((i for i, (x, y) in enumerate(pairs) if x != y), min(len(a.tokens), len(b.tokens)))


def _beyond(view: CellView, sent: Sent, prompt: int, allowed: float) -> dict[str, object] | None:
    """Evidence when the answer leaves the plain engine's nearest answer by more than the noise explains."""
    found = sent.answer(prompt)
    references = _references(view, sent, prompt)
    if not references:
        return None
    nearest = max(references, key=lambda other: (_fork(other.answer(prompt), found), other.send.name))
    expected, found = compare.answers(nearest, sent, prompt)
    fork = _fork(expected, found)
    if fork == len(expected.tokens) == len(found.tokens):
        return None
    lead = _lead(expected, found, fork)
    if lead is not None and lead <= max(2 * allowed, LOGIT_STEP):
        return None
    difference = compare.first_difference(expected, found)
    seen = compare.evidence(difference, prompt=prompt, sent=sent, reference=nearest)
    return {**seen, "lead": lead, "noise": allowed}


def _lead(reference: Answer, found: Answer, fork: int) -> float | None:
    """By how much the reference's token leads the found one, in the reference's own logprobs; None when the found
    token is not even among the reference's top, or there is none to look at."""
    if fork >= len(found.tokens) or fork >= len(reference.top):
        return None
    chosen = reference.logprobs[fork]
    rival = reference.top[fork].get(f"token_id:{found.tokens[fork]}")
    return None if rival is None else chosen - rival
