"""Events -> what each verdict rests on, for a reader; see ``base/exhibit.py``. A pure function, and never a verdict."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence

import numpy as np

from e2e.base.event import Event
from e2e.base.exhibit import (
    COLD,
    EXTERNAL,
    LOCAL,
    RIGHT,
    UNREAD,
    WRONG,
    Asked,
    Bounds,
    Choice,
    Chosen,
    Exhibit,
    KvMap,
    Parting,
    Step,
)  # fmt: skip
from e2e.base.judgement import CellJudgement, Judgement
from e2e.base.program import Cold, Computed, Loaded, Served, Span
from e2e.judge import assemble, compare
from e2e.judge.index import Index
from e2e.judge.kv import Digest
from e2e.judge.rules import digests
from e2e.judge.view import Answer, CellView, Sent

#: One token id -> its text.
Decode = Callable[[int], str]
#: Output positions that are shown before the first difference, and from it on.
BEFORE, AFTER = 2, 4


def exhibits(
    events: Iterable[Event], judgement: Judgement, decode: Decode | None = None
) -> Mapping[tuple[str, int], Exhibit]:
    """(cell, attempt) -> exhibit, of every cell of ``judgement`` of which the recording tells enough."""
    index = Index(events)
    named = {str(cell): cell for cell in index.cells}
    found = {}
    for cell in judgement.cells:
        exhibit = _exhibit(index, named.get(cell.id), cell, decode)
        if exhibit is not None:
            found[cell.id, cell.attempt] = exhibit
    return found


def _exhibit(index: Index, name: Hashable, cell: CellJudgement, decode: Decode | None) -> Exhibit | None:
    """None where the recording has values that make no sense: the judgement says so."""
    data = index.plans.get((name, cell.attempt))
    if data is None:
        return None
    try:
        plan = assemble.plan(data, assemble.program(data))
        view = assemble.view(index, name, cell.attempt, plan, strict=False)
        step = {} if plan.step is None else {"max_num_batched_tokens": plan.step}
        steps = tuple(_step(sent, timed=plan.timed) for sent in view.sent)
        return Exhibit({**plan.expect, **step}, steps, _parting(view, cell, decode), tuple(_maps(view)))
    except Exception:  # as the judge: whatever a recording holds
        return None


def _step(sent: Sent, *, timed: bool) -> Step:
    own, arm = [value for value in sent.arm.connector_counter("hit_tokens") if value is not None], sent.arm
    return Step(
        sent.side.name, sent.send.name, sent.side.site.connector, _source(sent), sent.alone,
        _bounds(arm.predicted("local")), _bounds(arm.predicted("external")),
        arm.local, arm.external if sent.side.site.connector else None, min(own, default=None),
        tuple(
            Asked(
                answer.request, prompt, arm.expected[prompt].tokens, answer.cached, answer.ttft_s if timed else None
            )
            for prompt, answer in sorted(arm.answers.items()) if prompt in arm.expected
        ),
    )  # fmt: skip


def _source(sent: Sent) -> str | None:
    if sent.send.claim(Cold):
        return COLD
    if sent.send.external:
        return EXTERNAL
    return LOCAL if sent.send.claim(Served) else None


def _bounds(span: Span | None) -> Bounds | None:
    return None if span is None else Bounds(span.least, span.most)


def _parting(view: CellView, cell: CellJudgement, decode: Decode | None) -> Parting | None:
    seen = cell.oracle.first_difference
    if seen is None:
        return None
    prompt, at, names = int(seen["prompt"]), int(seen["position"]), (str(seen["reference"]), _found(seen))
    by_name = {sent.name: sent.answer(prompt) for sent in view.sent}
    answers = [by_name.get(name) for name in names]
    if None in answers:
        return None
    last = max(len(answer.tokens) for answer in answers)
    rows = [
        (position, *(_chosen(answer, position, decode) for answer in answers))
        for position in range(max(at - BEFORE, 0), min(at + AFTER, last))
    ]
    return Parting(prompt, *names, at, tuple(rows))


def _found(difference: Mapping[str, object]) -> str:
    return f"{difference['engine']} {difference['arm']}"


def _chosen(answer: Answer, position: int, decode: Decode | None) -> Chosen | None:
    if position >= len(answer.tokens):
        return None
    token = answer.tokens[position]
    top = answer.top[position] if position < len(answer.top) else {}
    ordered = sorted(top.items(), key=lambda item: -item[1])
    text = answer.text[position] if position < len(answer.text) else decode(token) if decode else None
    logprob = answer.logprobs[position] if position < len(answer.logprobs) else None
    return Chosen(token, text, logprob, tuple(_choice(name, value, decode) for name, value in ordered))


def _choice(name: str, logprob: float, decode: Decode | None) -> Choice:
    """vLLM names a token ``token_id:N`` where it is asked for ids."""
    number = name.removeprefix("token_id:")
    known = decode is not None and number != name and number.isascii() and number.isdigit()
    return Choice(number, decode(int(number)) if known else None, logprob)


def _maps(view: CellView) -> Iterator[KvMap]:
    if not view.plan.digests:
        return
    for sent in view.sent:
        for claim in sent.send.claims:
            for prompt in sent.send.texts:
                if isinstance(claim, Loaded):
                    yield from _loaded(view, sent, claim.step, prompt)
                elif isinstance(claim, Computed):
                    yield from _computed(view, sent, claim.step, prompt)


def _loaded(view: CellView, sent: Sent, step: tuple[str, str], prompt: int) -> Iterator[KvMap]:
    reference = digests.reference(view, step, prompt)
    for (_, nth, rank), found in view.table.all(sent.send.where, "read", prompt).items():
        if rank in reference:
            yield _map(sent, " ".join(step), prompt, rank, nth, reference[rank], found)


def _computed(view: CellView, sent: Sent, step: tuple[str, str], prompt: int) -> Iterator[KvMap]:
    """Only where the judge compares them, and they differ: what was computed anew is shown by what was read of it."""
    other = view.of(step)
    if other is None or not compare.comparable(view, sent, other, prompt):
        return
    reference = digests.reference(view, step, prompt)
    for rank, found in view.table.computed(sent.send.where, prompt).items():
        if rank in reference and (made := _map(sent, other.name, prompt, rank, 1, reference[rank], found)).wrong:
            yield made


def _map(sent: Sent, reference: str, prompt: int, rank: int, nth: int, expected: Digest, found: Digest) -> KvMap:
    """Blocks that the reference has and that were not read stand behind those that were: the engine computed them."""
    before, after = digests.common(expected, found)
    signs = np.where((before != after).any((1, 2)), WRONG, RIGHT)
    if found.failed:
        signs[:] = UNREAD
    signs[[layer for layer in found.missing_layers if layer < len(signs)]] = UNREAD
    behind = UNREAD * max(expected.values.shape[3] - signs.shape[1], 0)
    return KvMap(
        sent.side.name, sent.send.name, reference, prompt, rank, nth, expected.block_size, _rows(signs, behind)
    )


def _rows(signs: Sequence[Sequence[str]], behind: str) -> tuple[str, ...]:
    return tuple("".join(row) + behind for row in signs)
