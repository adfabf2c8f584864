"""``judge``: events -> judgement. A pure function: no clock, file or network; same recording, same result."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import TypeVar

from e2e.base.event import Event
from e2e.base.judgement import CellJudgement, Hits, Judgement, Oracle, Ttft
from e2e.base.verdict import Finding, Reason, Verdict
from e2e.judge import assemble, in_use, lossy, measures, merge
from e2e.judge.index import Index
from e2e.judge.rules import blind
from e2e.judge.view import CellView, Plan

T = TypeVar("T")


def judge(
    events: Iterable[Event], *, strict: bool = False, known: Mapping[Hashable, CellJudgement] = MappingProxyType({})
) -> Judgement:
    """The verdict of every cell that the recording names, each from the last attempt in which it ended (else its last
    attempt). ``strict``: cells that are blind to a class of fault are inconclusive. ``known``: verdicts of cells that
    ended in an earlier part of a recording that still grows; they are taken over. Never raises on valid events."""
    index = Index(events)
    return Judgement(tuple(known.get(cell) or _tested(index, cell, strict) for cell in index.cells))


def judge_cell(events: Iterable[Event], cell: str, *, strict: bool = False) -> CellJudgement:
    """The verdict of one cell, as ``judge`` has it."""
    return _tested(Index(events), cell, strict)


def _tested(index: Index, cell: Hashable, strict: bool) -> CellJudgement:
    """Its own verdict, but where a later cell tested its finding and saw that the engine repeats itself not."""
    judged = _cell(index, cell, strict)
    if judged.verdict is not Verdict.CORRUPT:
        return judged
    for finding in in_use.shaken(index, cell, judged.findings):
        left = [each for each in judged.findings if each.verdict is not Verdict.CORRUPT]
        return replace(judged, verdict=finding.verdict, reason=finding.reason, findings=(finding, *left))
    return judged


def _cell(index: Index, cell: Hashable, strict: bool) -> CellJudgement:
    attempt = index.attempt_of(cell)
    data = index.plans.get((cell, attempt))
    if data is None:
        return _unjudged(cell, attempt, Finding("plan", Reason.NOT_RUN, {"what": "plan.cell"}))
    try:
        program = assemble.program(data)
    except ValueError as error:
        return _unjudged(cell, attempt, Finding("plan", Reason.NOT_RUN, {"what": f"program: {error}"}))
    except Exception as error:
        return _unjudged(cell, attempt, merge.rule_failed("program", error))
    try:
        plan = assemble.plan(data, program)
        view = assemble.view(index, cell, attempt, plan, strict=strict)
    except Exception as error:  # values of valid events that make no sense
        return _unjudged(cell, attempt, merge.rule_failed("view", error))
    return _judged(view, plan)


def _judged(view: CellView, plan: Plan) -> CellJudgement:
    findings = merge.run_rules(view)

    def measure(take: Callable[[], T], default: T) -> T:
        try:
            return take()
        except Exception as error:
            findings.append(merge.rule_failed("measures", error))
            return default

    oracle = measure(lambda: measures.oracle(view, merge.in_order(findings)), Oracle())
    findings[:] = measure(lambda: lossy.measured(view, findings, oracle), findings)
    hits = measure(lambda: measures.hits(view), Hits())
    effective: Mapping[str, object] = measure(lambda: measures.effective(view), {})
    spots = measure(lambda: blind.spots(view), plan.blind)
    generation = measure(lambda: measures.first_generation(view, merge.verdict(findings)[0]), None)
    ttft = measure(lambda: measures.ttft(view, merge.verdict(findings)[0]), Ttft())
    verdict, reason = merge.verdict(findings)
    return CellJudgement(
        id=view.cell,
        attempt=view.attempt,
        engine_key=plan.engine_key,
        adapter=plan.adapter,
        settings=plan.settings,
        effective=effective,
        verdict=verdict,
        reason=reason,
        findings=merge.in_order(findings),
        first_generation=generation,
        hits=hits,
        oracle=oracle,
        ttft=ttft,
        blind=spots,
        fault=plan.fault,
        replays=measures.replays(view),
        counters=plan.counters,
    )


def _unjudged(cell: Hashable, attempt: int, finding: Finding) -> CellJudgement:
    return CellJudgement(str(cell), attempt, "", "", {}, {}, finding.verdict, finding.reason, (finding,))
