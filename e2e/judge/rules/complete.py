"""Was everything run that was planned, once, to its end? Without this, missing evidence could look like health."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from e2e.base.program import Break, Empty, Send, Site, Start
from e2e.base.verdict import Finding, Reason
from e2e.judge import compare
from e2e.judge.view import CellView, Sent

RULE = "complete"


def check(view: CellView) -> list[Finding]:
    findings = []
    if not (view.begun and view.ended):
        findings.append(Finding(RULE, Reason.NOT_RUN, {"what": "cell.end" if view.begun else "cell.begin"}))
    for site, arm in view.unplanned:
        findings.append(Finding(RULE, Reason.NOT_RUN, {"engine": site, "arm": arm, "what": "its plan"}))
    for site in view.program.sites:
        findings.extend(_site(view, site))
    findings.extend(_acts(view))
    for send in view.program.sends:
        if send.site in view.sides:
            findings.extend(_send(view, send))
    return findings


def _site(view: CellView, site: Site) -> Iterator[Finding]:
    side = view.sides.get(site.name)
    if side is None:
        yield Finding(RULE, Reason.NO_BASELINE)
    elif side.lent and not site.connector and not side.finished:
        yield Finding(RULE, Reason.NO_BASELINE, {"what": "baseline.end"})
    elif side.lent and site.connector and view.begun and not all(ran.started for ran in side.engines):
        yield Finding(RULE, Reason.NOT_RUN, {"what": "engine.start"})
    elif not side.lent:
        starts = sum(isinstance(step, Start) and step.site == site.name for step in view.program.flat)
        if len(side.engines) != starts:
            seen = {"engine": site.name, "what": "engine.start", "expected": starts, "found": len(side.engines)}
            yield Finding(RULE, Reason.NOT_RUN, seen)


def _acts(view: CellView) -> Iterator[Finding]:
    """What was to be broken was, and was mended; a store that was to forget did not refuse."""
    asked: Counter[tuple[str, ...]] = Counter()
    for step in view.program.flat:
        if isinstance(step, Break):
            words = (step.what, step.how, step.target)
            asked.update((("nemesis.begin", *words), ("nemesis.end", *words)))
        elif isinstance(step, Empty):
            asked["store.empty", step.store] += 1
    done = Counter(
        (kind, *(str(data[name]) for name in ("what", "how", "target", "store") if name in data))
        for kind, data in view.acts
        if data.get("ok", True) is not False
    )
    for act, times in asked.items():
        if done[act] < times:
            yield Finding(RULE, Reason.NOT_RUN, {"what": " ".join(act), "expected": times, "found": done[act]})


def _send(view: CellView, send: Send) -> list[Finding]:
    side = view.sides[send.site]
    reason = Reason.NOT_RUN if side.site.connector else Reason.NO_BASELINE
    place = {"engine": send.site, "arm": send.name}
    sent = view.of(send.where)
    if sent is None:
        return [Finding(RULE, reason, {**place, "what": "arm"})]
    findings = []
    for what, wrong in _gaps(sent).items():
        if wrong:
            prompts = wrong if isinstance(wrong, list) else None
            findings.append(Finding(RULE, reason, {**place, "what": what, "prompts": prompts}))
    answers = sent.arm.answers
    unusable = [prompt for prompt in sorted(answers) if not answers[prompt].usable]
    if unusable:
        findings.append(Finding(RULE, Reason.ANSWER_INCOMPLETE, {**place, "prompts": unusable}))
    others = [p for p in send.texts if p in sent.arm.expected and not compare.same_prompt(_first(view, p), sent, p)]
    if others:
        wrong = Reason.UNSTABLE_REFERENCE if side.site.connector else Reason.NO_BASELINE
        findings.append(Finding(RULE, wrong, {**place, "what": "other prompt", "prompts": others}))
    return findings


def _first(view: CellView, prompt: int) -> Sent:
    """The Send whose token ids a text has: a connector's first."""
    sending = [sent for sent in view.sent if prompt in sent.send.texts]
    return min(sending, key=lambda sent: not sent.side.site.connector)


def _gaps(sent: Sent) -> dict[str, object]:
    arm, texts = sent.arm, sent.send.texts
    ended = {*arm.answers, *arm.indeterminate, *arm.gone, *(failure.prompt for failure in arm.failures)}
    return {
        "arm.begin": arm.begun == 0,
        "arm.end": arm.ended == 0,
        "arm repeated": arm.begun > 1 or arm.ended > 1,
        "request repeated": sorted(set(arm.repeated)),
        "request indeterminate": sorted(set(arm.indeterminate)),
        "request not sent": [prompt for prompt in texts if prompt not in ended],
        "prompt not planned": sorted(prompt for prompt in arm.answers if prompt not in texts),
        "answer": [] if sent.send.goes or sent.beside.forgiven else sorted(set(arm.gone)),
    }
