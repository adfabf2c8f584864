"""Figures of one cell: hits, first generation, oracle, TTFT. They explain a verdict and never make one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from e2e.base.judgement import IDENTICAL, NOT_REPRODUCED, SPLIT_NOISE, Hits, LengthTtft, Oracle, Ttft
from e2e.base.verdict import Finding, Reason, Verdict
from e2e.judge import compare
from e2e.judge.rules.loads import AXES
from e2e.judge.same_engine import plain
from e2e.judge.view import EXTERNAL_ARMS, Arm, CellView

ORACLE_REASONS = (
    Reason.FIRST_ANSWER_DIFFERS, Reason.TOKENS_DIFFER, Reason.LOGPROBS_DIFFER, Reason.BEYOND_NOISE,
)  # fmt: skip


def hits(view: CellView) -> Hits:
    arms = view.external_arms
    return Hits(
        predicted=_sum(arm.predicted("external") for arm in arms),
        engine=_sum(arm.external for arm in arms),
        connector=_sum(_of_all_ranks(arm.connector_counter("hit_tokens")) for arm in arms),
    )


def _of_all_ranks(values: list[int | None]) -> int | None:
    """What every rank was served: the least of them."""
    return min(values) if values and None not in values else None


def _sum(values: Iterable[int | None]) -> int | None:
    numbers = list(values)
    return sum(numbers) if numbers and None not in numbers else None


def first_generation(view: CellView, verdict: Verdict) -> str | None:
    """Did the external reruns repeat the connector engine's cold answers bit for bit? Differences by split alone are
    noise, proven by an exact comparison with an answer that was split the same way."""
    pairs = list(_external_answers(view))
    if not pairs:
        return None
    if verdict is Verdict.CORRUPT:
        return NOT_REPRODUCED
    result = IDENTICAL
    for arm, prompt in pairs:
        cold, found = view.connector.answer("cold", prompt), view.connector.answer(arm, prompt)
        if cold is None:
            return None
        if compare.first_difference(cold, found) is not None:
            exact = compare.exact_references(view, view.connector, arm, prompt)
            if not exact or compare.unstable(view, prompt):
                return NOT_REPRODUCED
            result = SPLIT_NOISE
    return result


def oracle(view: CellView, findings: Iterable[Finding]) -> Oracle:
    """What the external answers were compared with, and by how much they differ. ``findings`` in order."""
    kinds, equal, diffs = set(), True, []
    for arm, prompt in _external_answers(view):
        exact = compare.exact_references(view, view.connector, arm, prompt)
        references = exact or list(compare.answers(view, prompt))
        aligned = "aligned" in (compare.schedule(view, view.connector, arm, prompt) or ())
        kinds.add("coarse" if not exact else "aligned" if aligned else "split_matched")
        found = view.connector.answer(arm, prompt)
        if exact:
            equal = equal and all(r.answer.tokens == found.tokens for r in exact)
            diffs.extend(compare.max_logprob_diff(r.answer, found) for r in exact)
        elif references:
            equal = equal and any(r.answer.tokens == found.tokens for r in references)
            diffs.append(min(compare.max_logprob_diff(r.answer, found) for r in references))
    worst = next((kind for kind in ("coarse", "split_matched", "aligned") if kind in kinds), None)
    first = next((dict(f.evidence) for f in findings if f.reason in ORACLE_REASONS and "position" in f.evidence), None)
    return Oracle(worst, equal if diffs else None, max(diffs) if diffs else None, first, _texts(view, first))


def _texts(view: CellView, difference: Mapping[str, object] | None) -> Mapping[str, str] | None:
    """Both answers around their first difference; None where the recording has no text of one of them."""
    if difference is None:
        return None
    role, _, arm = str(difference["reference"]).rpartition(" ")
    by_role = {side.role: side for side in view.sides}
    prompt, at = int(difference["prompt"]), int(difference["position"])
    sides = ((role, arm), (str(difference["engine"]), str(difference["arm"])))
    answers = [by_role[role].answer(arm, prompt) if role in by_role else None for role, arm in sides]
    if any(answer is None or len(answer.text) != len(answer.tokens) for answer in answers):
        return None
    expected, found = answers
    return {
        "before": "".join(found.text[:at]), "expected": "".join(expected.text[at:]), "found": "".join(found.text[at:])
    }  # fmt: skip


def replays(view: CellView) -> int:
    return len(_external_answers(view))


def _external_answers(view: CellView) -> list[tuple[str, int]]:
    return [(arm, p) for arm in EXTERNAL_ARMS for p in view.prompts if view.connector.answer(arm, p) is not None]


def ttft(view: CellView, verdict: Verdict) -> Ttft:
    arms = view.connector.arms
    cold, local, external = (_client_s(view, arms.get(name)) for name in ("cold", "local", "external"))
    ratio = cold / external if cold and external else None
    passed = verdict is Verdict.PASS
    return Ttft(
        cold_s=cold,
        local_s=local,
        external_s=external,
        server_cold_s=_server_s(arms.get("cold")),
        server_external_s=_server_s(arms.get("external")),
        speedup=ratio if passed else None,
        claimed_speedup=None if passed else ratio,
        by_length=tuple(_of_length(view, prompt, tokens) for prompt, tokens in enumerate(view.plan.lengths)),
    )


def _of_length(view: CellView, prompt: int, tokens: int) -> LengthTtft:
    arms = (view.connector.arms.get(name) for name in ("cold", "local", "external"))
    answers = [arm.answers.get(prompt) if arm else None for arm in arms]
    return LengthTtft(tokens, *(None if answer is None else answer.ttft_s for answer in answers))


def _client_s(view: CellView, arm: Arm | None) -> float | None:
    if arm is None or not view.prompts or any(prompt not in arm.answers for prompt in view.prompts):
        return None
    return sum(arm.answers[prompt].ttft_s for prompt in view.prompts)


def _server_s(arm: Arm | None) -> float | None:
    if arm is None or arm.metrics is None or not arm.metrics["complete"] or not arm.metrics["ttft"]:
        return None
    value = arm.metrics["ttft"].get("sum_s")
    return None if value is None else float(value)


def effective(view: CellView) -> Mapping[str, object]:
    """What the worker and the loads say the setting really was, in the words of the axes; several values of one axis
    are joined."""
    found = dict(view.connector.effective or {})
    for axis in AXES:
        seen = sorted({str(plain(load[axis])) for arm in view.external_arms for load in arm.loads if axis in load})
        if seen:
            found[axis] = ", ".join(seen)
    return found
