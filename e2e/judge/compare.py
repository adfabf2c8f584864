"""Which answers must be equal bit for bit, and how two answers differ. Source of the rules: docs/oracle.md.

Equal prompts give equal bits when the KV of the prefix is the same and the rest is computed in the same steps. One at a
time, steps are S tokens long and start where the cached tokens end: answers served a multiple of S tokens compute the
steps of the cold run (aligned); answers served the same number of tokens compute the same suffix (split-matched).
Several at once share the steps, so only reruns on one engine, served the same number of tokens, are comparable, and
that only in the engine's batch-invariant mode. Of engines in use, whose others nobody knows, all that were served the
same number of tokens are then. Engines that don't compute alike are never comparable.
What of all this is looked at is what a Send claims to be ``Like``.
"""

from __future__ import annotations

from dataclasses import dataclass

from e2e.base.verdict import Reason
from e2e.judge.same_engine import disagreements
from e2e.judge.view import Answer, CellView, Sent, Side


@dataclass(frozen=True)
class Difference:
    """The first output position at which two answers differ. ``kind``: "tokens" | "logprobs"; ``top``: only the
    logprobs of tokens that were not chosen differ. Tokens and logprobs are None past the end of an answer."""

    position: int
    kind: str
    expected: int | None
    found: int | None
    logprobs: tuple[float | None, float | None]
    top: bool = False


def same_bits(a: float, b: float) -> bool:
    return a.hex() == b.hex()


def first_difference(expected: Answer, found: Answer) -> Difference | None:
    for position in range(max(len(expected.tokens), len(found.tokens))):
        tokens = [a.tokens[position] if position < len(a.tokens) else None for a in (expected, found)]
        logprobs = tuple(a.logprobs[position] if position < len(a.logprobs) else None for a in (expected, found))
        if tokens[0] != tokens[1]:
            return Difference(position, "tokens", *tokens, logprobs)
        if not same_bits(*logprobs):
            return _soft(expected, found, position, logprobs, top=False)
        if expected.top and found.top and not _same_top(expected.top[position], found.top[position]):
            return _soft(expected, found, position, logprobs, top=True)
    return None


def answers(one: Sent, other: Sent, prompt: int) -> tuple[Answer, Answer]:
    """Both answers to one prompt, as far as both were asked for."""
    return one.answer(prompt, other), other.answer(prompt, one)


def difference(reference: Sent, sent: Sent, prompt: int) -> Difference | None:
    return first_difference(*answers(reference, sent, prompt))


def _soft(expected: Answer, found: Answer, position: int, logprobs, *, top: bool) -> Difference:
    """Logprobs differ first; when tokens differ further on, that is the heavier difference and its place is named."""
    for later in range(position, max(len(expected.tokens), len(found.tokens))):
        if expected.tokens[later : later + 1] != found.tokens[later : later + 1]:
            tokens = [a.tokens[later] if later < len(a.tokens) else None for a in (expected, found)]
            values = tuple(a.logprobs[later] if later < len(a.logprobs) else None for a in (expected, found))
            return Difference(later, "tokens", *tokens, values)
    token = expected.tokens[position]
    return Difference(position, "logprobs", token, token, logprobs, top)


def _same_top(a, b) -> bool:
    return a.keys() == b.keys() and all(same_bits(a[token], b[token]) for token in a)


def max_logprob_diff(expected: Answer, found: Answer) -> float:
    """Largest absolute difference of the output tokens' logprobs over all positions, and of the top logprobs as far
    as both answers saw the same tokens before."""
    diffs = [abs(a - b) for a, b in zip(expected.logprobs, found.logprobs, strict=False)]
    for position in range(min(len(expected.top), len(found.top))):
        if expected.tokens[:position] != found.tokens[:position]:
            break
        a, b = expected.top[position], found.top[position]
        diffs.extend(abs(a[token] - b[token]) for token in a.keys() & b.keys())
    return max(diffs, default=0.0)


def prefill_step(view: CellView, side: Side) -> int | None:
    """S in tokens: what the engine says, else what was planned."""
    effective = (side.effective or {}).get("max_num_batched_tokens")
    return view.plan.step if effective is None or view.plan.step is None else int(effective)


def served(view: CellView, sent: Sent, prompt: int) -> int | None:
    """Tokens of this prompt that came out of a cache, as far as that is known for sure: per request, else as expected
    when vLLM's counters of the arm agree. After a failed load the engine recomputed what the connector's journal does
    not call kept, or nobody knows what, unless its policy is to fail then, so that an answer was built on what the load
    left."""
    arm = sent.arm
    if arm.load_failed and view.policy(sent.side) != "fail":
        failed = [load for load in arm.loads if load.get("failed")]
        told = all("kept" in load for load in failed) and len(failed) >= arm.connector_total("load_failures")
        if not told:
            return None
        if (left := kept(sent, prompt)) is not None:
            return left
    cached = arm.answers[prompt].cached
    if cached is not None:
        return cached
    if sent.side.reports_cached:
        return 0
    expected = arm.expected.get(prompt)
    counted = (arm.local, arm.external if sent.side.site.connector else arm.external or 0)
    if sent.side.site.in_use and len(arm.expected) == 1:  # where counters are there, they are of this request alone
        local, external = counted[0], counted[1] if sent.send.external else counted[1] or 0
        return None if None in (local, external) else local + external
    for source, count in zip(("local", "external"), counted, strict=True):
        span = arm.predicted(source)
        if expected is None or span is None or not span.least == span.most == count:
            return None
    return expected.both.most


def kept(sent: Sent, prompt: int) -> int | None:
    """Tokens that a failed load of this prompt left standing, as the connector's journal says; None where none failed,
    or it does not say."""
    request = sent.arm.answers[prompt].request
    mine = [load for load in sent.arm.loads if load.get("failed") and load["request"] == request]
    return min((int(load["kept"]) for load in mine if "kept" in load), default=None)


def schedule(view: CellView, sent: Sent, prompt: int) -> tuple[object, ...] | None:
    """Answers with equal schedules are comparable bit for bit; None is comparable with nothing."""
    tokens = served(view, sent, prompt)
    if tokens is None or not repeats(sent):
        return None
    if not sent.alone or (tokens and _alone_or_not(sent)):
        return ("at once", tokens) if tokens and invariant(sent) else None
    answer = view.program.answered(prompt)
    if answer is not None and tokens > answer:  # computed token by token, which prefill steps don't repeat
        return ("generated", tokens)
    step = prefill_step(view, sent.side)
    return ("aligned",) if tokens == 0 or (step and tokens % step == 0) else ("split", tokens)


def invariant(sent: Sent) -> bool:
    return (sent.side.effective or {}).get("batch_invariant") is True


def _alone_or_not(sent: Sent) -> bool:
    """On an engine in use: does it make no difference to a bit whether others were at work?"""
    return sent.side.site.in_use and invariant(sent)


def repeats(sent: Sent) -> bool:
    """Does what is computed twice come out alike? On a GPU vLLM's kernels of adapters add up in any order (split-K by
    atomic adds), but in its batch-invariant mode."""
    effective = sent.side.effective or {}
    return not sent.send.lora or not effective.get("gpu") or invariant(sent)


def comparable(view: CellView, one: Sent, other: Sent, prompt: int) -> bool:
    mine = schedule(view, one, prompt)
    if mine is None or schedule(view, other, prompt) != mine or not same_prompt(one, other, prompt):
        return False
    if one.side.site.in_use and one.send.salt != other.send.salt and served(view, one, prompt):
        return False  # of the KV of two computations, beside which anybody may have been at work
    undisturbed = one.alone or _alone_or_not(one)
    return one.side is other.side or (undisturbed and not disagreements(one.side, other.side))


def same_prompt(one: Sent, other: Sent, prompt: int) -> bool:
    """Was the very same list of token ids sent?"""
    expected = [sent.arm.expected[prompt].digest for sent in (one, other) if prompt in sent.arm.expected]
    return len(expected) == 2 and expected[0] == expected[1]


def references(view: CellView, sent: Sent, prompt: int) -> list[Sent]:
    """What the answer to ``prompt`` is claimed to be like, as far as it is there: plain sites first."""
    named = [view.of(where) for where in sent.send.like]
    found = [
        other
        for other in named
        if other is not None and other.answer(prompt) is not None and same_prompt(sent, other, prompt)
    ]
    return sorted(found, key=lambda other: (other.side.site.connector, other.side.name, other.send.name))


def exact_references(view: CellView, sent: Sent, prompt: int) -> list[Sent]:
    """References whose bits the answer to ``prompt`` must have; empty when nothing computed the same. What was loaded
    itself proves nothing of what is."""
    fresh = [other for other in references(view, sent, prompt) if other.fresh]
    return [other for other in fresh if comparable(view, sent, other, prompt)]


def unstable(view: CellView, sent: Sent, prompt: int) -> tuple[Sent, Sent, Difference] | None:
    """Two references of one engine that should be equal and are not: plain ones, where there are any, else others to
    which nothing had been loaded yet."""
    named = [other for where in sent.send.like if (other := view.of(where)) is not None and other.fresh]
    named = [other for other in named if not other.side.site.connector] or named
    named = [other for other in named if other.answer(prompt) is not None]
    for number, one in enumerate(named):
        for other in named[number + 1 :]:
            if one.side is other.side and comparable(view, one, other, prompt):
                differs = difference(one, other, prompt)
                if differs is not None:
                    return one, other, differs
    return None


def why(sent: Sent, reference: Sent, otherwise: Reason) -> Reason:
    """What a difference means. Where nothing was loaded yet, an engine that does not repeat itself is no reference, and
    one that differs from another differs by its connector."""
    if not (sent.fresh and reference.fresh):
        return otherwise
    return Reason.UNSTABLE_REFERENCE if sent.side is reference.side else Reason.FIRST_ANSWER_DIFFERS


def evidence(difference: Difference, *, prompt: int, sent: Sent, reference: Sent) -> dict[str, object]:
    """A difference as a finding's evidence; ``logprobs`` is [expected, found]."""
    return {
        "prompt": prompt,
        **sent.place,
        "reference": reference.name,
        "position": difference.position,
        "kind": "top logprobs" if difference.top else difference.kind,
        "expected": difference.expected,
        "found": difference.found,
        "logprobs": list(difference.logprobs),
    }
