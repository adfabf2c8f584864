"""Of engines in use: what a cell that was played there shows beside its verdict, and what a second one says of its
finding.

Nobody may make such an engine do one thing at a time, so a finding is tested once more, by a cell that names it
(``plan.cell``, ``again``): answers to which nothing was loaded are asked for anew, under other salts. Where they are
not what the first cell had, the engine does not repeat itself, and nothing was shown of any load.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass

from e2e.base.event import Event
from e2e.base.verdict import Finding, Reason
from e2e.judge import assemble, compare
from e2e.judge.index import Index
from e2e.judge.rules import coarse
from e2e.judge.same_engine import disagreements
from e2e.judge.view import CellView, Sent

RULE = "again"


@dataclass(frozen=True)
class Source:
    """What one text of a Send was served, in tokens, as far as that is known for sure. ``seconds``: its TTFT."""

    site: str
    send: str
    prompt: int
    local: int | None
    external: int | None
    seconds: float
    text: str


@dataclass(frozen=True)
class Seen:
    """``exact``: was all that was loaded compared bit for bit. ``noise``: by site, the largest difference of logprobs
    between answers to which nothing had been loaded, that took other steps, where there is such a pair. ``alike``: do
    engines that computed the same steps agree bit for bit; None where that can't be told."""

    exact: bool
    noise: dict[str, float]
    alike: bool | None
    sources: tuple[Source, ...]


def seen(events: Iterable[Event], cell: str) -> Seen | None:
    """None where the cell has no plan that can be read."""
    view = _view(Index(events), cell)
    if view is None:
        return None
    fresh = [sent for sent in view.sent if sent.fresh]
    loads = [(sent, prompt) for sent in view.external for prompt in sent.send.texts if sent.answer(prompt)]
    return Seen(
        exact=bool(loads) and all(compare.exact_references(view, *load) for load in loads),
        noise={site: max(pairs) for site in view.sides if (pairs := _noise(view, fresh, site))},
        alike=_alike(view, fresh),
        sources=tuple(_source(view, sent, prompt) for sent in view.sent for prompt in sorted(sent.arm.answers)),
    )


def _noise(view: CellView, fresh: list[Sent], site: str) -> list[float]:
    return coarse.of_pairs(view, [sent for sent in fresh if sent.side.name == site])


def _source(view: CellView, sent: Sent, prompt: int) -> Source:
    """Where one of two sources can't have served it, what it was served is the other's."""
    answer, single = sent.arm.answers[prompt], len(sent.arm.answers) == 1
    local, external = (sent.arm.local, sent.arm.external) if single else (None, None)
    both, hit = compare.served(view, sent, prompt), sent.arm.expected.get(prompt)
    if local is None and both is not None and hit is not None:
        if not hit.local.most:
            local, external = 0, both
        elif not hit.external.most:
            local, external = both, 0
    return Source(sent.side.name, sent.send.name, prompt, local, external, answer.ttft_s, "".join(answer.text))


def _alike(view: CellView, fresh: list[Sent]) -> bool | None:
    """Whatever the engines say of themselves."""
    found = [
        compare.difference(one, other, prompt) is None
        for number, one in enumerate(fresh)
        for other in fresh[number + 1 :]
        for prompt in {*one.send.texts} & {*other.send.texts}
        if one.side is not other.side and _both(one, other, prompt) and _same_steps((view, view), one, other, prompt)
    ]
    return all(found) if found else None


def _same_steps(views: tuple[CellView, CellView], one: Sent, other: Sent, prompt: int) -> bool:
    """From the first token on, and with nobody beside them: then two computations are alike where engines are."""
    mine, its = (compare.schedule(view, sent, prompt) for view, sent in zip(views, (one, other), strict=True))
    alone = all(_computed_alone(view, sent) for view, sent in zip(views, (one, other), strict=True))
    return mine is not None and mine == its and alone and compare.same_prompt(one, other, prompt)


def _computed_alone(view: CellView, sent: Sent) -> bool:
    """It, and all under its salt that it may have been served."""
    mine = [other for other in view.sent if other.side is sent.side and other.send.salt == sent.send.salt]
    return all(other.alone for other in mine)


def _both(one: Sent, other: Sent, prompt: int) -> bool:
    return one.answer(prompt) is not None and other.answer(prompt) is not None


def shaken(index: Index, cell: Hashable, findings: Iterable[Finding]) -> Iterator[Finding]:
    """At most one finding: another cell tested what this one found, and the engine does not repeat itself: not its
    bits, where both computed the same steps; not its tokens as far as those that ``findings`` are about, elsewhere.
    What can't be compared shakes nothing."""
    position = max((int(f.evidence["position"]) for f in findings if "position" in f.evidence), default=-1)
    tests = [name for (name, _), data in index.plans.items() if data.get("again") == cell]
    first = _view(index, cell)
    if first is None:
        return
    for name in tests:
        second = _view(index, name)
        if second is None or not second.ended:
            continue
        for mine, its, prompt in _pairs(first, second):
            difference = compare.difference(mine, its, prompt)
            if difference is None:
                continue
            exact = _same_steps((first, second), mine, its, prompt) and not disagreements(mine.side, its.side)
            if exact or (difference.kind == "tokens" and difference.position <= position):
                told = compare.evidence(difference, prompt=prompt, sent=its, reference=mine)
                yield Finding(RULE, Reason.UNSTABLE_REFERENCE, told)
                return


def _pairs(first: CellView, second: CellView) -> Iterator[tuple[Sent, Sent, int]]:
    """References of what was loaded, and their like in the other cell."""
    named = {where for sent in first.external or first.sent for where in sent.send.like}
    for mine in (sent for sent in first.sent if sent.send.where in named and sent.fresh):
        for its in (sent for sent in second.sent if sent.fresh):
            for prompt in {*mine.send.texts} & {*its.send.texts}:
                if _both(mine, its, prompt):
                    yield mine, its, prompt


def _view(index: Index, cell: Hashable) -> CellView | None:
    attempt = index.attempt_of(cell)
    data = index.plans.get((cell, attempt))
    try:
        return assemble.view(index, cell, attempt, assemble.plan(data, assemble.program(data)), strict=False)
    except Exception:  # the judge of the cell itself says what is wrong with it
        return None
