"""Which answers must be equal bit for bit, and how two answers differ. Source of the rules: docs/oracle.md.

Equal prompts give equal bits when the KV of the prefix is the same and the rest is computed in the same steps. One at a
time, steps are S tokens long and start where the cached tokens end: answers served a multiple of S tokens compute the
steps of the cold run (aligned); answers served the same number of tokens compute the same suffix (split-matched).
Several at once share the steps, so only reruns on one engine, served the same number of tokens, are comparable, and
that only in the engine's batch-invariant mode. Engines that don't compute alike are never comparable.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from e2e.judge.same_engine import disagreements
from e2e.judge.view import BASELINE, Answer, CellView, Side


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


@dataclass(frozen=True)
class Reference:
    role: str
    arm: str
    answer: Answer

    @property
    def name(self) -> str:
        return f"{self.role} {self.arm}"


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


def prefill_step(view: CellView) -> int | None:
    """S in tokens: what the engine says, else what was planned."""
    effective = (view.connector.effective or {}).get("max_num_batched_tokens")
    return view.plan.step if effective is None or view.plan.step is None else int(effective)


def served(view: CellView, side: Side, arm: str, prompt: int) -> int | None:
    """Tokens of this prompt that came out of a cache, as far as that is known for sure: per request, else as expected
    when vLLM's counters of the arm agree. After a failed load it is unknown: the engine recomputed some, unless its
    policy is to fail then, so that an answer was built on what the load left."""
    found = side.arms[arm]
    if found.load_failed and view.plan.load_failure_policy != "fail":
        return None
    cached = found.answers[prompt].cached
    if cached is not None:
        return cached
    if side.reports_cached:
        return 0
    expected = found.expected.get(prompt)
    counted = (found.local, found.external or (0 if side.role == BASELINE else found.external))
    predicted = (found.predicted("local"), found.predicted("external"))
    return None if expected is None or counted != predicted or None in counted else expected.local + expected.external


def schedule(view: CellView, side: Side, arm: str, prompt: int) -> tuple[object, ...] | None:
    """Answers with equal schedules are comparable bit for bit; None is comparable with nothing."""
    tokens = served(view, side, arm, prompt)
    if tokens is None or not view.plan.deterministic:
        return None
    if view.plan.concurrent:
        return (side.role, tokens) if tokens else None
    step = prefill_step(view)
    engine = side.role if disagreements(view) else "any"
    return (engine, "aligned") if tokens == 0 or (step and tokens % step == 0) else (engine, tokens)


def answers(view: CellView, prompt: int) -> Iterator[Reference]:
    """All usable answers to one prompt but those of the external arms: what an external answer is compared with."""
    for side in view.sides:
        for arm in ("cold", "local"):
            found = side.answer(arm, prompt)
            if found is not None and same_prompt(view, side, arm, prompt):
                yield Reference(side.role, arm, found)


def same_prompt(view: CellView, side: Side, arm: str, prompt: int) -> bool:
    """Was the very same list of token ids sent as in the connector's cold arm?"""
    cold = view.connector.arms.get("cold")
    expected = [a.expected[prompt].digest for a in (cold, side.arms[arm]) if a and prompt in a.expected]
    return len(expected) == 2 and expected[0] == expected[1]


def side_of(view: CellView, reference: Reference) -> Side:
    return next(side for side in view.sides if side.role == reference.role)


def exact_references(view: CellView, side: Side, arm: str, prompt: int) -> list[Reference]:
    """References whose bits the answer of ``arm`` to ``prompt`` must have; empty when nothing computed the same."""
    mine = schedule(view, side, arm, prompt)
    if mine is None or not same_prompt(view, side, arm, prompt):
        return []
    return [
        other
        for other in answers(view, prompt)
        if (other.role, other.arm) != (side.role, arm)
        and schedule(view, side_of(view, other), other.arm, prompt) == mine
    ]


def unstable(view: CellView, prompt: int) -> Difference | None:
    """Two answers of the reference that should be equal and are not: the baseline's, without it the connector's own."""
    side = view.baseline or view.connector
    if any(side.answer(arm, prompt) is None for arm in ("cold", "local")):
        return None
    mine = schedule(view, side, "cold", prompt)
    if mine is None or schedule(view, side, "local", prompt) != mine:
        return None
    return first_difference(side.answer("cold", prompt), side.answer("local", prompt))


def evidence(difference: Difference, *, prompt: int, role: str, arm: str, reference: str) -> dict[str, object]:
    """A difference as a finding's evidence; ``logprobs`` is [expected, found]."""
    return {
        "prompt": prompt,
        "engine": role,
        "arm": arm,
        "reference": reference,
        "position": difference.position,
        "kind": "top logprobs" if difference.top else difference.kind,
        "expected": difference.expected,
        "found": difference.found,
        "logprobs": list(difference.logprobs),
    }
