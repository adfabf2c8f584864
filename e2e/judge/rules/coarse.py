"""Where nothing computed the same steps: the first differing token must be a near tie within the baseline's own noise.

Noise is the largest difference of logprobs that the baseline engine shows between its own cold and local answers, up to
and with the first differing token, over pairs that need not be equal. A tie may lean by twice that: both logits move.
"""

from __future__ import annotations

from e2e.base.verdict import Finding, Reason
from e2e.judge import compare
from e2e.judge.rules import digests
from e2e.judge.view import ARMS_OF, BASELINE, CONNECTOR, EXTERNAL_ARMS, Answer, CellView

RULE = "coarse"
#: One step of a bfloat16 logit between 16 and 32: what the smallest rounding moves, whatever the noise sample shows.
LOGIT_STEP = 0.125


def check(view: CellView) -> list[Finding]:
    allowed = noise(view)
    findings = []
    for prompt in view.prompts:
        shaken = compare.unstable(view, prompt) is not None
        for arm in ARMS_OF[CONNECTOR]:
            if view.connector.answer(arm, prompt) is None:
                continue
            exact = [] if shaken else compare.exact_references(view, view.connector, arm, prompt)
            beyond = None
            if allowed is not None and not any(r.role == BASELINE for r in exact):
                beyond = _beyond(view, arm, prompt, allowed)
            if beyond is not None:
                findings.append(Finding(RULE, Reason.BEYOND_NOISE, beyond))
            if not exact and arm in EXTERNAL_ARMS and not digests.vouch(view, arm, prompt):
                seen = {"prompt": prompt, "arm": arm, "noise": allowed}
                findings.append(Finding(RULE, Reason.NO_EXACT_REFERENCE, seen))
    return findings


def noise(view: CellView) -> float | None:
    """Largest logprob difference within the baseline engine, or None when its answers show none: pairs that computed
    the same steps, or that came one at a time, may be equal and yet say nothing about other steps."""
    if view.baseline is None:
        return None
    seen = []
    for prompt in view.prompts:
        cold, local = (view.baseline.answer(arm, prompt) for arm in ("cold", "local"))
        if cold is None or local is None:
            continue
        schedules = [compare.schedule(view, view.baseline, arm, prompt) for arm in ("cold", "local")]
        if schedules[0] != schedules[1] or schedules[0] is None or compare.unstable(view, prompt):
            seen.append(_common_noise(cold, local))
    return max(seen, default=0.0) or None


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


def _beyond(view: CellView, arm: str, prompt: int, allowed: float) -> dict[str, object] | None:
    """Evidence when the answer leaves the baseline's nearest answer by more than the noise explains."""
    found = view.connector.answer(arm, prompt)
    references = [r for r in compare.answers(view, prompt) if r.role == BASELINE]
    if not references or not compare.same_prompt(view, view.connector, arm, prompt):
        return None
    nearest = max(references, key=lambda r: (_fork(r.answer, found), r.arm))
    fork = _fork(nearest.answer, found)
    if fork == len(nearest.answer.tokens) == len(found.tokens):
        return None
    lead = _lead(nearest.answer, found, fork)
    if lead is not None and lead <= max(2 * allowed, LOGIT_STEP):
        return None
    difference = compare.first_difference(nearest.answer, found)
    seen = compare.evidence(difference, prompt=prompt, role=CONNECTOR, arm=arm, reference=nearest.name)
    return {**seen, "lead": lead, "noise": allowed}


def _lead(reference: Answer, found: Answer, fork: int) -> float | None:
    """By how much the reference's token leads the found one, in the reference's own logprobs; None when the found
    token is not even among the reference's top, or there is none to look at."""
    if fork >= len(found.tokens) or fork >= len(reference.top):
        return None
    chosen = reference.logprobs[fork]
    rival = reference.top[fork].get(f"token_id:{found.tokens[fork]}")
    return None if rival is None else chosen - rival
