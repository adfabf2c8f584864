"""A program without some of its steps, texts or sites, and without all that then says or does nothing; pure.

What is left is as true of a right connector as the whole was: who was served by what is gone goes too.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from functools import partial

import msgspec

from e2e.base.program import (
    Break,
    Claims,
    Empty,
    Forget,
    Hit,
    Like,
    Mend,
    Program,
    Scribble,
    Send,
    Served,
    Start,
    Step,
    Stop,
    Text,
    Together,
    Where,
)

#: (Send, text) -> tokens in front of it that some earlier text shares, in vLLM's cache of that site and in its store
Known = dict[tuple[Where, int], tuple[int, int]]
Rows = list[list[Step]]

replaced = msgspec.structs.replace


def without(
    program: Program, *, steps: Collection[int] = (), texts: Collection[int] = (), sites: Collection[str] = ()
) -> Program | None:
    """``steps``: places in ``program.flat``; ``texts``: indices. None for what can't be built, or is the same."""
    place = iter(range(sum(1 for _ in program.flat)))
    rows: Rows = [
        [each for each in members if next(place) not in steps and getattr(each, "site", None) not in sites]
        for members in map(_members, program.steps)
    ]
    known, gone = _known(program, [list(_members(step)) for step in program.steps]), set(texts)
    before: Rows | None = None
    while before != rows:
        before = [list(row) for row in rows]
        rows = _only(rows, partial(_trimmed_send, gone=gone))
        rows = _referring(rows)
        gone |= _unanswered(program, rows)
        rows = _served(program, rows, known)
        rows = _useful(program, rows)
    return _built(program, rows)


def _members(step: Step) -> tuple[Step, ...]:
    return step.steps if isinstance(step, Together) else (step,)


def _only(rows: Rows, change: Callable[[Step], Step | None]) -> Rows:
    return [[new for step in row if (new := change(step)) is not None] for row in rows]


def _sends(rows: Rows) -> Iterator[Send]:
    return (step for row in rows for step in row if isinstance(step, Send))


def _trimmed_send(step: Step, gone: Collection[int]) -> Step | None:
    """Without these texts; None for a Send of nothing."""
    if not isinstance(step, Send) or not {*step.texts} & {*gone}:
        return step
    left = [place for place, text in enumerate(step.texts) if text not in gone]
    if not left:
        return None
    claims = tuple(
        replaced(claim, hits=tuple(claim.hits[place] for place in left))
        if isinstance(claim, Served) and claim.hits else claim
        for claim in step.claims
    )  # fmt: skip
    texts, at_once = tuple(step.texts[place] for place in left), min(step.at_once, len(left))
    return replaced(step, texts=texts, claims=claims, at_once=at_once)


def _referring(rows: Rows) -> Rows:
    """Claims refer to what is there."""
    there = {send.where for send in _sends(rows)}

    def claim(claim: Claims) -> Claims | None:
        if isinstance(claim, Like):
            steps = tuple(where for where in claim.steps if where in there)
            return replaced(claim, steps=steps) if steps else None
        return claim if getattr(claim, "step", None) in {None, *there} else None

    def send(step: Step) -> Step:
        if not isinstance(step, Send):
            return step
        return replaced(step, claims=tuple(new for old in step.claims if (new := claim(old)) is not None))

    return _only(rows, send)


def _unanswered(program: Program, rows: Rows) -> set[int]:
    """Texts that go on from an answer that nobody gives any more."""
    given = {(send.where, text) for send in _sends(rows) for text in send.texts}
    texts = enumerate(program.texts)
    return {index for index, text in texts if text.follows and (text.follows, text.like) not in given}


@dataclass
class _Caches:
    """Texts in vLLM's own cache, by site, and in a store, by its name."""

    local: dict[str, set[int]] = field(default_factory=dict)
    stored: dict[str, set[int]] = field(default_factory=dict)

    def take(self, program: Program, step: Step) -> None:
        if isinstance(step, (Start, Stop, Forget)):
            self.local[step.site] = set()
        elif isinstance(step, Empty):
            self.stored[step.store] = set()
        elif isinstance(step, Send):
            site = program.site(step.site)
            self.local.setdefault(site.name, set()).update(step.texts)
            if site.connector and site.store:
                self.stored.setdefault(site.store, set()).update(step.texts)

    def of(self, program: Program, send: Send, text: int) -> tuple[int, int]:
        site = program.site(send.site)
        local, stored = self.local.get(site.name, ()), self.stored.get(site.store or "", ())
        whole = program.texts[text].tokens
        return tuple(
            whole if text in among else max((program.common(text, other) for other in among), default=0)
            for among in (local, stored)
        )


def _known(program: Program, rows: Rows) -> Known:
    known, caches = {}, _Caches()
    for row in rows:
        for step in row:
            if isinstance(step, Send):
                known |= {(step.where, text): caches.of(program, step, text) for text in step.texts}
            caches.take(program, step)
    return known


def _served(program: Program, rows: Rows, before: Known) -> Rows:
    """Without texts that were to be served from what is gone. ``before``: what the whole program knew."""
    now = _known(program, rows)

    def lost(send: Send, text: int, hit: Hit) -> bool:
        """As far as it was ever known: what is served of an answer stands in no text."""
        needs = hit.local.most, hit.local.most + hit.external.most if hit.external.most else 0
        was, still = before[send.where, text], now[send.where, text]
        return any(have < min(need, had) for need, had, have in zip(needs, was, still, strict=True))

    def send(step: Step) -> Step | None:
        if not isinstance(step, Send) or step.claim(Served) is None:
            return step
        hits = zip(step.texts, program.hits(step), strict=True)
        return _trimmed_send(step, {text for text, hit in hits if lost(step, text, hit)})

    return _only(rows, send)


def _useful(program: Program, rows: Rows) -> Rows:
    """Without what is done to a site before nothing, engines that nobody is sent anything, and mends of nothing."""
    flat = [step for row in rows for step in row]
    broken = {(step.what, step.how, step.target) for step in flat if isinstance(step, Break)}
    sent = {step.site for step in flat if isinstance(step, Send)}

    def idle(place: int, site: str, until: tuple[type[Step], ...]) -> bool:
        """Is the site sent nothing until one of these?"""
        for step in flat[place + 1 :]:
            if getattr(step, "site", None) == site and isinstance(step, (Send, *until)):
                return not isinstance(step, Send)
        return True

    def useless(place: int, step: Step) -> bool:
        if isinstance(step, (Start, Forget, Scribble)):
            return idle(place, step.site, (Stop,) if isinstance(step, Start) else (Start, Stop, Forget))
        if isinstance(step, Stop):
            first = not any(isinstance(each, Start) and each.site == step.site for each in flat[:place])
            return first or step.site not in sent
        if isinstance(step, Break) and step.what == "engine":
            return step.target not in sent
        return isinstance(step, Mend) and (step.what, step.how, step.target) not in broken

    gone = {place for place, step in enumerate(flat) if useless(place, step)}
    gone |= {_stop_of(flat, place) for place in gone if isinstance(flat[place], Start)}
    place = iter(range(len(flat)))
    return [[step for step in row if next(place) not in gone] for row in rows]


def _stop_of(flat: list[Step], start: int) -> int | None:
    site = flat[start].site
    later = (place for place, step in enumerate(flat) if place > start and isinstance(step, Stop))
    return next((place for place in later if flat[place].site == site), None)


def _built(program: Program, rows: Rows) -> Program | None:
    steps = tuple(Together(tuple(row)) if len(row) > 1 else row[0] for row in rows if row)
    sent = {text for send in _sends(rows) for text in send.texts}
    for index in range(len(program.texts) - 1, -1, -1):  # what a text is made of stands before it
        if index in sent:
            sent |= {part for part in (program.texts[index].like, program.texts[index].body) if part is not None}
    at = {old: new for new, old in enumerate(sorted(sent))}
    texts = tuple(_moved(program.texts[old], at) for old in at)
    sites = tuple(site for site in program.sites if any(send.site == site.name for send in _sends(rows)))
    moved = [
        replaced(step, steps=tuple(_sending(each, at) for each in step.steps))
        if isinstance(step, Together) else _sending(step, at)
        for step in steps
    ]  # fmt: skip
    return built(program, sites=sites, texts=texts, steps=tuple(moved)) if sites else None


def built(program: Program, **parts: object) -> Program | None:
    """``program`` with other parts; None for what can't be built, or is the same."""
    try:
        made = replaced(program, **parts)
    except ValueError:
        return None
    return None if made == program else made


def _moved(text: Text, at: dict[int, int]) -> Text:
    return replaced(text, like=at.get(text.like), body=at.get(text.body))


def _sending(step: Step, at: dict[int, int]) -> Step:
    return replaced(step, texts=tuple(at[text] for text in step.texts)) if isinstance(step, Send) else step
