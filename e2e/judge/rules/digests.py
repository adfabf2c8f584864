"""``Loaded`` and ``Computed``: what attention read after the load is what another Send computed, and that is what an
engine without a connector computes. Where not: the first wrong layer, block, K or V and head, how much, and what was
done to it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np

from e2e.base.program import Claims, Computed, Loaded, Send, Where
from e2e.base.verdict import Finding, Reason
from e2e.judge import compare
from e2e.judge.classify import classify
from e2e.judge.kv import Digest
from e2e.judge.same_engine import asked
from e2e.judge.taken import Place
from e2e.judge.view import CellView, Sent, Side

RULE = "digests"


def check(view: CellView) -> list[Finding]:
    if not view.plan.digests:
        return []
    findings = [
        Finding(RULE, Reason.DIGEST_MISSING, {"engine": role, "arm": arm, "prompt": prompt, "what": what})
        for what, places in (
            ("digests of another request", view.table.foreign),
            ("digests that can't be read", view.table.broken),
            ("digests that contradict each other", view.table.twice),
        )
        for role, arm, prompt in places
    ]
    for prompt in view.prompts:
        findings += _missing(view, prompt)
    for sent in view.sent:
        for prompt in sent.send.texts:
            findings += _failed(view, sent, prompt)
            for claim in sent.send.claims:
                findings += _claim(view, sent, claim, prompt)
    return findings


def _claim(view: CellView, sent: Sent, claim: Claims, prompt: int) -> Iterator[Finding]:
    if isinstance(claim, Loaded):
        yield from _loaded(view, sent, claim.step, prompt)
    elif isinstance(claim, Computed):
        yield from _computed(view, sent, claim.step, prompt)


def vouch(view: CellView, sent: Sent, prompt: int) -> bool:
    """Do equal digests prove the load of this answer, so that no exact reference is needed? Only when all that was
    served was hashed, and what it was loaded from is what a plain engine computes, where that can be compared."""
    claim = sent.send.claim(Loaded)
    if not view.plan.digests or claim is None:
        return False
    read = view.table.all(sent.send.where, "read", prompt)
    computed = reference(view, claim.step, prompt)
    ranks = set(range(view.ranks(sent.side))) | computed.keys()
    if not read or _untold(read, ranks) or computed.keys() != ranks or not _vouched(view, claim.step, prompt, ranks):
        return False
    served = _to_be_served(sent, prompt)
    return all(
        (nth > 1 or digest.tokens == served)
        and (digest.tokens % digest.block_size == 0 or _tails(computed[rank], digest))
        and (nth > 1 or digest.values.shape[3] <= computed[rank].values.shape[3])  # resumed, it has of its answer, too
        and not (digest.missing_layers or digest.failed)
        and _equal(computed[rank], digest)
        for (_, nth, rank), digest in read.items()
    )


def _vouched(view: CellView, step: Where, prompt: int, ranks: set[int]) -> bool:
    """Is what this Send computed all that its own claim says, as far as there is something to compare it with?"""
    claim = view.program.send(step).claim(Computed)
    if claim is None or claim.step[0] not in view.sides:
        return True
    told = reference(view, claim.step, prompt).keys() == ranks
    return told and (alike(view, step, claim.step, prompt) or _batched(view, step, claim.step, prompt))


def alike(view: CellView, one: Where, other: Where, prompt: int) -> bool:
    """Did both compute the same bytes?"""
    if not view.plan.digests:
        return False
    mine, its = (reference(view, where, prompt) for where in (one, other))
    return bool(mine) and mine.keys() == its.keys() and all(_equal(its[rank], mine[rank]) for rank in mine)


def _batched(view: CellView, one: Where, other: Where, prompt: int) -> bool:
    """Are their bytes not comparable because several requests shared the steps, or nothing would repeat them? Then
    blind.py says so."""
    sent = [view.of(where) for where in (one, other)]
    if None in sent or all(each.alone and compare.repeats(each) for each in sent):
        return False
    return not compare.comparable(view, *sent, prompt)


def reference(view: CellView, step: Where, prompt: int) -> dict[int, Digest]:
    """What a Send computed of a prompt, by rank; of one that it did not send, the blocks in front that it shares with
    one that it did."""
    text, tokens = _shared(view, view.program.send(step), prompt)
    computed = view.table.computed(step, text)
    if text == prompt:
        return computed
    blocks = {rank: tokens // digest.block_size for rank, digest in computed.items()}
    return {
        rank: replace(digest, values=digest.values[..., : blocks[rank]], tail=None)
        for rank, digest in computed.items()
        if blocks[rank]
    }


def _shared(view: CellView, send: Send, prompt: int) -> tuple[int, int]:
    """The text of a Send that shares most with a prompt, and how many tokens that is."""
    if prompt in send.texts:
        return prompt, view.program.texts[prompt].tokens
    common = {text: view.program.common(prompt, text) for text in send.texts}
    return max(common.items(), key=lambda item: item[1])


def _missing(view: CellView, prompt: int) -> Iterator[Finding]:
    """Of every rank and every read: its layers, and of what was served all whole blocks, but for the last token, which
    vLLM computes in any case."""
    wanted = {(where, when, text): view.table.all(where, when, text) for where, when, text in _wanted(view, prompt)}
    for (where, when, text), found in wanted.items():
        side = view.sides[where[0]]
        told = {rank for (other, _, _), by in wanted.items() if other[0] == where[0] for _, _, rank in by}
        ranks = told | set(range(view.ranks(side)))
        layers = sorted({layer for digest in found.values() for layer in digest.missing_layers})
        tokens = _served(view, where, text) if when == "read" else 0
        lacking = [f"layers {layers}"] if layers else []
        lacking += _untold(found, ranks) if found else ["all"]
        lacking += [
            f"tokens from {digest.tokens} on"
            for (_, nth, _), digest in found.items()
            # once preempted it may find less in the caches, and computes the rest
            if nth == 1 and digest.values.shape[3] < (tokens - 1) // digest.block_size
        ]
        if lacking:
            what = f"{when} KV" if lacking == ["all"] else f"{when} KV of {', '.join(dict.fromkeys(lacking))}"
            seen = {"engine": where[0], "arm": where[1], "prompt": text, "what": what}
            yield Finding(RULE, Reason.DIGEST_MISSING, seen)


def _wanted(view: CellView, prompt: int) -> Iterator[tuple[Where, str, int]]:
    """(Send, when, text) of all digests that claims about this prompt speak of."""
    for send in view.program.sends:
        sent = view.of(send.where)
        if prompt not in send.texts or (sent is not None and prompt in sent.arm.gone):
            continue
        for claim in send.claims:
            if not isinstance(claim, (Loaded, Computed)):
                continue
            if isinstance(claim, Computed):
                yield send.where, "computed", prompt
            elif _served(view, send.where, prompt):
                yield send.where, "read", prompt
            if claim.step[0] in view.sides:
                yield claim.step, "computed", _shared(view, view.program.send(claim.step), prompt)[0]


def _untold(found: Mapping[Place, Digest], ranks: set[int]) -> list[str]:
    """Ranks that did not tell, and reads: a row says how many there were of its request."""
    reads: dict[str, int] = {}
    for (request, nth, _), digest in found.items():
        reads[request] = max(reads.get(request, 1), nth, digest.of_reads)
    lacking = []
    for request, most in reads.items():
        for nth in range(1, most + 1):
            missing = sorted(rank for rank in ranks if (request, nth, rank) not in found)
            which = f" of read {nth}" if most > 1 else ""
            lacking += [f"rank {rank}{which}" for rank in missing]
    return lacking


def _to_be_served(sent: Sent, prompt: int) -> int | None:
    """Tokens; where it may be more or fewer, what the request says."""
    hit, answer = sent.arm.expected.get(prompt), sent.arm.answers.get(prompt)
    if hit is None or hit.both.least == hit.both.most:
        return None if hit is None else hit.both.most
    return None if answer is None else answer.cached


def _served(view: CellView, where: Where, prompt: int) -> int:
    """Tokens of this prompt that were to be served, and that no failed load took back, if they are a whole block and it
    was answered; else 0."""
    sent = view.of(where)
    if sent is None or prompt not in sent.arm.answers or sent.beside.cut:
        return 0
    block = asked(view, sent.side.site, ("block_size",)).get("block_size")
    served, left = _to_be_served(sent, prompt) or 0, compare.kept(sent, prompt)
    served = served if left is None else min(served, left)
    return served if served >= int(block or 1) else 0


def _computed(view: CellView, sent: Sent, step: Where, prompt: int) -> Iterator[Finding]:
    """Both engines computed the prompt in the same steps: then what they computed is equal, or something the connector
    does to the engine changed it. Nothing is said where the reference itself does not repeat."""
    other = view.of(step)
    if other is None or sent.answer(prompt) is None or other.answer(prompt) is None:
        return
    if compare.unstable(view, sent, prompt) or not compare.comparable(view, sent, other, prompt):
        return
    found, expected = (view.table.computed(each.send.where, prompt) for each in (sent, other))
    wrong = [rank for rank in sorted(found.keys() & expected.keys()) if not _equal(expected[rank], found[rank])]
    if wrong:
        place = {**sent.place, "prompt": prompt, "reference": other.name, **_of_ranks(view, sent.side, wrong)}
        seen = _where(expected[wrong[0]], found[wrong[0]], {})
        yield Finding(RULE, compare.why(sent, other, Reason.DIGEST_DIFFERS), {**place, **seen})


def failed(view: CellView, sent: Sent, prompt: int) -> int:
    """How often the connector itself said of a load of this prompt that it failed."""
    return sum(digest.failed for digest in view.table.all(sent.send.where, "read", prompt).values())


def _failed(view: CellView, sent: Sent, prompt: int) -> Iterator[Finding]:
    """What the connector itself took back decides nothing: vLLM dropped that step's output."""
    times = failed(view, sent, prompt)
    if times and not sent.asked_for("load_failures"):
        recomputed = view.policy(sent.side) == "recompute"
        seen = {**sent.place, "prompt": prompt, "found": times, "recomputed": recomputed}
        yield Finding(RULE, Reason.LOAD_FAILED, {**seen, "errors": sent.arm.connector_errors})


def _loaded(view: CellView, sent: Sent, step: Where, prompt: int) -> Iterator[Finding]:
    if step[0] != sent.side.name and not compare.repeats(sent):
        return  # it may have computed them itself
    computed, read = reference(view, step, prompt), view.table.all(sent.send.where, "read", prompt)
    compared = {place: digest for place, digest in read.items() if place[2] in computed and not digest.failed}
    wrong = [place for place, digest in compared.items() if not _equal(computed[place[2]], digest)]
    if not wrong:
        return
    request, nth, rank = wrong[0]
    by_prompt = {other: view.table.computed(step, other) for other in view.prompts if other != prompt}
    others = {other: by_rank[rank].values for other, by_rank in by_prompt.items() if rank in by_rank}
    seen = _where(computed[rank], read[wrong[0]], others)
    ranks = [other for *of, other in wrong if of == [request, nth]]
    place = {**sent.place, "prompt": prompt, "reference": " ".join(step), **_of_ranks(view, sent.side, ranks)}
    if (reads := max(read[wrong[0]].of_reads, nth)) > 1:
        place |= {"read": nth, "reads": reads}
    yield Finding(RULE, Reason.DIGEST_DIFFERS, {**place, **seen})


def _of_ranks(view: CellView, side: Side, wrong: list[int]) -> dict[str, object]:
    """The first wrong rank; where there are several, all that are wrong, and how many there are."""
    ranks = view.ranks(side)
    return {"rank": wrong[0], **({"wrong_ranks": wrong, "ranks": ranks} if ranks > 1 else {})}


def common(a: Digest, b: Digest) -> tuple[np.ndarray, np.ndarray]:
    """Values of the blocks that both have, and of what stands behind them. ValueError when they are of different
    models."""
    blocks = min(a.values.shape[3], b.values.shape[3])
    if a.values.shape[:3] != b.values.shape[:3]:
        raise ValueError(f"digests of {a.values.shape[:3]} and {b.values.shape[:3]} layers, K/V and heads")
    values = a.values[..., :blocks], b.values[..., :blocks]
    if not _tails(a, b) or blocks != a.tail_end // a.block_size:
        return values
    return tuple(np.concatenate((whole, each.tail), axis=3) for whole, each in zip(values, (a, b), strict=True))


def _tails(a: Digest, b: Digest) -> bool:
    """Do both tell of the same tokens behind the whole blocks?"""
    return a.tail is not None and b.tail is not None and a.tail_end == b.tail_end


def _equal(expected: Digest, found: Digest) -> bool:
    return bool(np.array_equal(*common(expected, found)))


def _where(expected: Digest, found: Digest, others: Mapping[int, np.ndarray]) -> dict[str, object]:
    """First wrong place in the order layer, block, K/V, head; share of wrong pages; what was done."""
    before, after = common(expected, found)
    wrong = before != after
    layer = int(np.argmax(wrong.any((1, 2, 3))))
    block = int(np.argmax(wrong[layer].any((0, 1))))
    kv, head = (int(i) for i in np.argwhere(wrong[layer, :, :, block])[0])
    missing = np.array(found.missing_layers, dtype=int)
    if len(missing):
        wrong = wrong.copy()
        wrong[missing] = False
    pattern = classify(
        before, after, block_size=expected.block_size, zero=found.zero, blank=found.blank, others=others,
        sample=found.sample,
    )  # fmt: skip
    size = expected.block_size
    return {
        "layer": layer, "kv": "KV"[kv], "head": head, "block": block, "token": block * size,
        "token_end": (block + 1) * size,
        "wrong_pages": int(wrong.sum()), "pages": int(wrong.size), "wrong_share": round(float(wrong.mean()), 6),
        "wrong_layers": int(wrong.any((1, 2, 3)).sum()), "layers": int(wrong.shape[0]),
        "pattern": pattern.name, "explained": round(pattern.share, 4), **pattern.details,
    }  # fmt: skip
