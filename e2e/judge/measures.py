"""Figures of one cell: hits, first generation, oracle, TTFT. They explain a verdict and never make one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from e2e.base import speed
from e2e.base.judgement import (
    IDENTICAL,
    NO_PLAIN_RUN,
    NO_RERUN,
    NOT_PROVEN,
    NOT_REPRODUCED,
    NOT_TIMED,
    NOT_WHOLE,
    SPLIT_NOISE,
    Hits,
    LengthTtft,
    Oracle,
    Ttft,
)
from e2e.base.program import Claim, Cold, Loaded, Send, Served
from e2e.base.verdict import Finding, Reason, Verdict
from e2e.judge import compare
from e2e.judge.rules import digests
from e2e.judge.rules.loads import AXES
from e2e.judge.same_engine import plain
from e2e.judge.view import CellView, Sent

ORACLE_REASONS = (
    Reason.FIRST_ANSWER_DIFFERS, Reason.TOKENS_DIFFER, Reason.LOGPROBS_DIFFER, Reason.BEYOND_NOISE,
)  # fmt: skip


def hits(view: CellView) -> Hits:
    arms = [sent.arm for sent in view.external]
    spans = [arm.predicted("external") for arm in arms]
    return Hits(
        predicted=_sum(None if span is None else span.most for span in spans),
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
    """Did the external reruns repeat the first cold answers of an engine with the connector bit for bit? Differences by
    split alone are noise, proven by an exact comparison with an answer that was split the same way, or by digests."""
    pairs = list(_external_answers(view))
    if not pairs:
        return None
    if verdict is Verdict.CORRUPT:
        return NOT_REPRODUCED
    result, compared = IDENTICAL, False
    for sent, prompt in pairs:
        alike = (other for other in _sends(view, Cold) if prompt in other.send.texts and _named(sent, other))
        cold = next(alike, None)
        if cold is None:
            continue  # the beginning of another, or another's answer: never sent cold
        compared = True
        if cold.answer(prompt) is None:
            return None
        if compare.difference(cold, sent, prompt) is not None:
            exact = compare.exact_references(view, sent, prompt)
            if compare.unstable(view, sent, prompt) or not (exact or digests.vouch(view, sent, prompt)):
                return NOT_REPRODUCED
            if any(compare.difference(other, sent, prompt) for other in exact):
                return NOT_REPRODUCED
            result = SPLIT_NOISE
    return result if compared else None


def _named(sent: Sent, other: Sent) -> bool:
    """Does a claim hold the one against the other?"""
    steps = (claim.step for claim in sent.send.claims if isinstance(claim, Loaded))
    return other.send.where in (*sent.send.like, *steps)


def oracle(view: CellView, findings: Iterable[Finding]) -> Oracle:
    """What the external answers were compared with, and by how much they differ. ``findings`` in order."""
    kinds, equal, diffs = set(), True, []
    for sent, prompt in _external_answers(view):
        exact = compare.exact_references(view, sent, prompt)
        references = [compare.answers(each, sent, prompt) for each in exact or compare.references(view, sent, prompt)]
        aligned = "aligned" in (compare.schedule(view, sent, prompt) or ())
        kinds.add("coarse" if not exact else "aligned" if aligned else "split_matched")
        if exact:
            equal = equal and all(expected.tokens == found.tokens for expected, found in references)
            diffs.extend(compare.max_logprob_diff(*pair) for pair in references)
        elif references:
            equal = equal and any(expected.tokens == found.tokens for expected, found in references)
            diffs.append(min(compare.max_logprob_diff(*pair) for pair in references))
    worst = next((kind for kind in ("coarse", "split_matched", "aligned") if kind in kinds), None)
    first = next((dict(f.evidence) for f in findings if f.reason in ORACLE_REASONS and "position" in f.evidence), None)
    return Oracle(worst, equal if diffs else None, max(diffs) if diffs else None, first, _texts(view, first))


def _texts(view: CellView, difference: Mapping[str, object] | None) -> Mapping[str, str] | None:
    """Both answers around their first difference; None where the recording has no text of one of them."""
    if difference is None:
        return None
    prompt, at = int(difference["prompt"]), int(difference["position"])
    names = (difference["reference"], f"{difference['engine']} {difference['arm']}")
    by_name = {sent.name: sent.answer(prompt) for sent in view.sent}
    answers = [by_name.get(str(name)) for name in names]
    if any(answer is None or len(answer.text) != len(answer.tokens) for answer in answers):
        return None
    expected, found = answers
    return {
        "before": "".join(found.text[:at]), "expected": "".join(expected.text[at:]), "found": "".join(found.text[at:])
    }  # fmt: skip


def replays(view: CellView) -> int:
    return len(_external_answers(view))


def _external_answers(view: CellView) -> list[tuple[Sent, int]]:
    return [(sent, p) for sent in view.external for p in sent.send.texts if sent.answer(p) is not None]


def _sends(view: CellView, kind: type[Claim], *, external: bool = False, connector: bool = True) -> list[Sent]:
    """Sends to engines with the connector, or to plain ones, that claim one thing, in order."""
    sides = [sent for sent in view.sent if sent.side.site.connector is connector and sent.send.external is external]
    return [sent for sent in sides if sent.send.claim(kind)]


@dataclass(frozen=True)
class _Timed:
    """Of the first Send of each kind that sends all that the first cold one does, one at a time where there is one.
    ``baseline``: cold, on an engine that differs in having no connector. ``again``: what ``external`` claims, once
    more."""

    baseline: Sent | None
    cold: Sent | None
    local: Sent | None
    external: Sent | None
    again: Sent | None


def _timed(view: CellView, colds: Sequence[Sent], texts: tuple[int, ...]) -> _Timed:
    def first(sends: Iterable[Sent]) -> Sent | None:
        return min((sent for sent in sends if {*texts} <= {*sent.send.texts}), key=lambda s: not s.alone, default=None)

    reruns = _sends(view, Served, external=True)
    external = first(reruns)
    alike = (sent for sent in _sends(view, Cold, connector=False) if _but_for_the_connector(sent, colds[:1]))
    again = [sent for sent in reruns if external and sent is not external and _same(sent.send, external.send)]
    return _Timed(first(alike), first(colds), first(_sends(view, Served)), external, first(again))


def _same(send: Send, other: Send) -> bool:
    return (send.site, send.texts, send.claims) == (other.site, other.texts, other.claims)


def _but_for_the_connector(sent: Sent, colds: Sequence[Sent]) -> bool:
    site = sent.side.site
    return all((of.side.site.settings, of.side.site.weights) == (site.settings, site.weights) for of in colds)


def ttft(view: CellView, verdict: Verdict) -> Ttft:
    colds = _sends(view, Cold)
    texts = colds[0].send.texts if colds else tuple(view.prompts)
    if not view.plan.timed:
        unseen = (LengthTtft(view.program.texts[prompt].tokens, *[None] * 7) for prompt in texts)
        return Ttft(no_speedup=NOT_TIMED, by_length=tuple(unseen))
    timed = _timed(view, colds, texts)
    baseline, cold, local, external = (
        _client_s(sent, texts) for sent in (timed.baseline, timed.cold, timed.local, timed.external)
    )
    ratio, passed = speed.speedup(baseline, external), verdict is Verdict.PASS
    return Ttft(
        baseline_cold_s=baseline,
        cold_s=cold,
        local_s=local,
        external_s=external,
        server_cold_s=_server_s(timed.cold),
        server_external_s=_server_s(timed.external),
        speedup=ratio if passed else None,
        claimed_speedup=None if passed else ratio,
        no_speedup=_no_speedup(timed, passed, ratio),
        store_cost=speed.more(baseline, cold),
        by_length=tuple(_of_length(timed, prompt, view.program.texts[prompt].tokens, passed) for prompt in texts),
    )


def _no_speedup(timed: _Timed, passed: bool, ratio: float | None) -> str | None:
    if not passed:
        return NOT_PROVEN
    if ratio is not None:
        return None
    return NO_PLAIN_RUN if timed.baseline is None else NO_RERUN if timed.external is None else NOT_WHOLE


def _of_length(timed: _Timed, prompt: int, tokens: int, passed: bool) -> LengthTtft:
    sends = (timed.baseline, timed.cold, timed.local, timed.external, timed.again)
    answers = [sent.arm.answers.get(prompt) if sent else None for sent in sends]
    baseline, cold, local, external, again = (None if answer is None else answer.ttft_s for answer in answers)
    ratio = speed.speedup(baseline, external) if passed else None
    return LengthTtft(tokens, baseline, cold, local, external, again, ratio, speed.more(baseline, cold))


def _client_s(sent: Sent | None, texts: tuple[int, ...]) -> float | None:
    if sent is None or not texts or any(prompt not in sent.arm.answers for prompt in texts):
        return None
    return sum(sent.arm.answers[prompt].ttft_s for prompt in texts)


def _server_s(sent: Sent | None) -> float | None:
    metrics = sent.arm.metrics if sent else None
    if metrics is None or not metrics["complete"] or not metrics["ttft"]:
        return None
    value = metrics["ttft"].get("sum_s")
    return None if value is None else float(value)


def effective(view: CellView) -> Mapping[str, object]:
    """What the worker and the loads say the setting really was, in the words of the axes; several values of one axis
    are joined."""
    found = dict(next((side.effective for side in view.connectors if side.effective), {}))
    for axis in AXES:
        loads = [load for sent in view.external for load in sent.arm.loads if axis in load]
        if seen := sorted({str(plain(load[axis])) for load in loads}):
            found[axis] = ", ".join(seen)
    return found
