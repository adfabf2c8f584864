"""Digests: what attention read after the load is what the cold run computed, and that is what an engine without a
connector computes. Where not: the first wrong layer, block, K or V and head, how much, and what was done to it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from e2e.base.verdict import Finding, Reason
from e2e.judge import compare
from e2e.judge.classify import classify
from e2e.judge.kv import Digest, Sample
from e2e.judge.view import BASELINE, CONNECTOR, EXTERNAL_ARMS, CellView, Taken

RULE = "digests"
#: (request, n-th read of it, rank)
Place = tuple[str, int, int]
Key = tuple[str, str, str, int, str, int, int]


@dataclass(frozen=True)
class Table:
    """``found``: (role, arm, when, prompt, *Place) -> digest, in order. ``foreign``: what came back for a request that
    was not sent, ``broken``: what can't be read, ``twice``: what was told twice, and not alike; as (role, arm, prompt).
    """

    found: Mapping[Key, Digest]
    foreign: list[tuple[str, str, object]]
    broken: list[tuple[str, str, object]]
    twice: list[tuple[str, str, object]]

    def of(self, role: str, arm: str, when: str, prompt: int) -> dict[Place, Digest]:
        return {k[4:]: d for k, d in self.found.items() if k[:4] == (role, arm, when, prompt)}

    def computed(self, role: str, prompt: int) -> dict[int, Digest]:
        """What the cold run computed, by rank."""
        return {rank: digest for (_, _, rank), digest in self.of(role, "cold", "computed", prompt).items()}


def check(view: CellView) -> list[Finding]:
    if not view.plan.digests:
        return []
    table = _table(view.digests)
    findings = [
        Finding(RULE, Reason.DIGEST_MISSING, {"engine": role, "arm": arm, "prompt": prompt, "what": what})
        for what, places in (
            ("digests of another request", table.foreign),
            ("digests that can't be read", table.broken),
            ("digests that contradict each other", table.twice),
        )
        for role, arm, prompt in places
    ]
    for prompt in view.prompts:
        findings += _missing(view, table, prompt)
        findings += _first_answer(view, table, prompt)
        for arm in EXTERNAL_ARMS:
            findings += _external(view, table, arm, prompt)
    return findings


def vouch(view: CellView, arm: str, prompt: int) -> bool:
    """Do equal digests prove the load of this answer, so that no exact reference is needed? Only when all that was
    served was hashed, and the cold run's KV is what the baseline engine computes."""
    if not view.plan.digests:
        return False
    table = _table(view.digests)
    read = table.of(CONNECTOR, arm, "read", prompt)
    cold, base = (table.computed(role, prompt) for role in (CONNECTOR, BASELINE))
    ranks = set(range(view.ranks)) | cold.keys()
    if not read or _untold(read, ranks) or cold.keys() != ranks or (view.baseline is not None and base.keys() != ranks):
        return False
    expected = view.connector.arms[arm].expected.get(prompt)
    served = None if expected is None else expected.local + expected.external
    return all(
        (nth > 1 or digest.tokens == served)
        and digest.tokens % digest.block_size == 0
        and digest.values.shape[3] <= cold[rank].values.shape[3]
        and not (digest.missing_layers or digest.failed)
        and _equal(cold[rank], digest)
        and (not base or _equal(base[rank], cold[rank]))
        for (_, nth, rank), digest in read.items()
    )


def _table(digests: tuple[Taken, ...]) -> Table:
    found: dict[Key, Digest] = {}
    foreign, broken, twice = [], [], []
    for taken in digests:
        place = (taken.role, taken.arm, taken.data["prompt"])
        if not taken.sent:
            foreign.append(place)
            continue
        try:
            digest = Digest.of(taken.data)
            if taken.sample is not None and digest.when == "read":
                digest = replace(digest, sample=Sample.of(taken.sample))
        except (KeyError, TypeError, ValueError):
            broken.append(place)
            continue
        # a prompt is computed once, and every read counts: a wrong one that a right one follows is wrong
        of = ("", 1) if digest.when == "computed" else (digest.request, digest.nth)
        key = (taken.role, taken.arm, digest.when, digest.prompt, *of, digest.rank)
        if not np.array_equal(digest.values, found.setdefault(key, digest).values):
            twice.append(place)
    return Table(dict(sorted(found.items())), foreign, broken, twice)


def _missing(view: CellView, table: Table, prompt: int) -> Iterator[Finding]:
    """Of every rank and every read: its layers, and for a rerun all whole blocks that were to be served, but for the
    last token, which vLLM computes in any case."""
    wanted = [(CONNECTOR, "cold", "computed")]
    wanted += [(CONNECTOR, arm, "read") for arm in EXTERNAL_ARMS if _served(view, arm, prompt)]
    if view.baseline is not None:
        wanted.append((BASELINE, "cold", "computed"))
    tables = {(role, arm): table.of(role, arm, when, prompt) for role, arm, when in wanted}
    ranks = {rank for found in tables.values() for _, _, rank in found} | set(range(view.ranks))
    for role, arm, when in wanted:
        found = tables[role, arm]
        layers = sorted({layer for digest in found.values() for layer in digest.missing_layers})
        tokens = _served(view, arm, prompt) if role == CONNECTOR else 0
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
            yield Finding(RULE, Reason.DIGEST_MISSING, {"engine": role, "arm": arm, "prompt": prompt, "what": what})


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


def _served(view: CellView, arm: str, prompt: int) -> int:
    """Tokens of this prompt that were to be served, if they are a whole block and the arm answered; else 0."""
    found = view.connector.arms.get(arm)
    if found is None or prompt not in found.answers:
        return 0
    expected = found.expected.get(prompt)
    served = 0 if expected is None else expected.local + expected.external
    return served if served >= int(view.plan.expect.get("block_size") or 1) else 0


def _first_answer(view: CellView, table: Table, prompt: int) -> Iterator[Finding]:
    """Both engines computed the prompt in the same steps: then what they computed is equal, or something the connector
    does to the engine changed it. Nothing is said where the reference itself does not repeat."""
    side = view.baseline
    if side is None or any(s.answer("cold", prompt) is None for s in view.sides) or compare.unstable(view, prompt):
        return
    mine = compare.schedule(view, view.connector, "cold", prompt)
    if mine is None or compare.schedule(view, side, "cold", prompt) != mine:
        return
    cold, base = (table.computed(role, prompt) for role in (CONNECTOR, BASELINE))
    wrong = [rank for rank in sorted(cold.keys() & base.keys()) if not _equal(base[rank], cold[rank])]
    if wrong:
        place = {"engine": CONNECTOR, "arm": "cold", "prompt": prompt, "reference": "baseline cold"}
        seen = _where(base[wrong[0]], cold[wrong[0]], {})
        yield Finding(RULE, Reason.FIRST_ANSWER_DIFFERS, {**place, **_of_ranks(view, wrong), **seen})


def _external(view: CellView, table: Table, arm: str, prompt: int) -> Iterator[Finding]:
    cold, read = table.computed(CONNECTOR, prompt), table.of(CONNECTOR, arm, "read", prompt)
    at = {"engine": CONNECTOR, "arm": arm, "prompt": prompt}
    # what the connector itself took back decides nothing: vLLM dropped that step's output
    if failed := sum(digest.failed for digest in read.values()):
        recomputed, errors = view.plan.load_failure_policy == "recompute", view.connector.arms[arm].connector_errors
        yield Finding(RULE, Reason.LOAD_FAILED, {**at, "found": failed, "recomputed": recomputed, "errors": errors})
    compared = {place: digest for place, digest in read.items() if place[2] in cold and not digest.failed}
    wrong = [place for place, digest in compared.items() if not _equal(cold[place[2]], digest)]
    if not wrong:
        return
    request, nth, rank = wrong[0]
    computed = {other: table.computed(CONNECTOR, other) for other in view.prompts if other != prompt}
    others = {other: by_rank[rank].values for other, by_rank in computed.items() if rank in by_rank}
    seen = _where(cold[rank], read[wrong[0]], others)
    place = {"reference": "connector cold", **_of_ranks(view, [other for *of, other in wrong if of == [request, nth]])}
    if (reads := max(read[wrong[0]].of_reads, nth)) > 1:
        place |= {"read": nth, "reads": reads}
    yield Finding(RULE, Reason.DIGEST_DIFFERS, {**at, **place, **seen})


def _of_ranks(view: CellView, wrong: list[int]) -> dict[str, object]:
    """The first wrong rank; where there are several, all that are wrong, and how many there are."""
    more = {"wrong_ranks": wrong, "ranks": view.ranks} if view.ranks > 1 else {}
    return {"rank": wrong[0], **more}


def _common(a: Digest, b: Digest) -> tuple[np.ndarray, np.ndarray]:
    """Values of the blocks that both have. ValueError when they are of different models."""
    blocks = min(a.values.shape[3], b.values.shape[3])
    if a.values.shape[:3] != b.values.shape[:3]:
        raise ValueError(f"digests of {a.values.shape[:3]} and {b.values.shape[:3]} layers, K/V and heads")
    return a.values[..., :blocks], b.values[..., :blocks]


def _equal(expected: Digest, found: Digest) -> bool:
    return bool(np.array_equal(*_common(expected, found)))


def _where(expected: Digest, found: Digest, others: Mapping[int, np.ndarray]) -> dict[str, object]:
    """First wrong place in the order layer, block, K/V, head; share of wrong pages; what was done."""
    before, after = _common(expected, found)
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
