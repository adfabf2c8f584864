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
Key = tuple[str, str, str, int, int]


@dataclass(frozen=True)
class Table:
    """``found``: (role, arm, when, prompt, rank) -> digest. ``foreign``: what came back for a request that was not
    sent, ``broken``: what can't be read, ``twice``: what was told twice, and not alike; as (role, arm, prompt)."""

    found: Mapping[Key, Digest]
    foreign: list[tuple[str, str, object]]
    broken: list[tuple[str, str, object]]
    twice: list[tuple[str, str, object]]

    def of(self, role: str, arm: str, when: str, prompt: int) -> dict[int, Digest]:
        """By rank."""
        return {k[4]: d for k, d in self.found.items() if k[:4] == (role, arm, when, prompt)}


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
    cold = table.of(CONNECTOR, "cold", "computed", prompt)
    base = table.of(BASELINE, "cold", "computed", prompt)
    if not read or read.keys() != cold.keys() or (view.baseline is not None and base.keys() != cold.keys()):
        return False
    expected = view.connector.arms[arm].expected.get(prompt)
    served = None if expected is None else expected.local + expected.external
    whole = all(d.tokens == served and d.tokens % d.block_size == 0 and not d.missing_layers for d in read.values())
    return whole and all(
        _equal(cold[rank], read[rank]) and (not base or _equal(base[rank], cold[rank])) for rank in read
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
        key = (taken.role, taken.arm, digest.when, digest.prompt, digest.rank)
        if not np.array_equal(digest.values, found.setdefault(key, digest).values):
            twice.append(place)
    return Table(found, foreign, broken, twice)


def _missing(view: CellView, table: Table, prompt: int) -> Iterator[Finding]:
    """Of every rank that told anything: its layers, and for a rerun all whole blocks that were to be served, but for
    the last token, which vLLM computes in any case."""
    wanted = [(CONNECTOR, "cold", "computed")]
    wanted += [(CONNECTOR, arm, "read") for arm in EXTERNAL_ARMS if _served(view, arm, prompt)]
    if view.baseline is not None:
        wanted.append((BASELINE, "cold", "computed"))
    tables = {(role, arm): table.of(role, arm, when, prompt) for role, arm, when in wanted}
    ranks = set().union(*tables.values()) or {0}
    for role, arm, when in wanted:
        found = tables[role, arm]
        layers = sorted({layer for digest in found.values() for layer in digest.missing_layers})
        tokens = _served(view, arm, prompt) if role == CONNECTOR else 0
        lacking = [f"layers {layers}"] if layers else []
        lacking += [f"rank {rank}" for rank in sorted(ranks - found.keys())] if found else ["all"]
        lacking += [
            f"tokens from {digest.tokens} on"
            for digest in found.values()
            if digest.values.shape[3] < (tokens - 1) // digest.block_size
        ]
        if lacking:
            what = f"{when} KV" if lacking == ["all"] else f"{when} KV of {', '.join(dict.fromkeys(lacking))}"
            yield Finding(RULE, Reason.DIGEST_MISSING, {"engine": role, "arm": arm, "prompt": prompt, "what": what})


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
    cold, base = (table.of(role, "cold", "computed", prompt) for role in (CONNECTOR, BASELINE))
    for rank in cold.keys() & base.keys():
        if not _equal(base[rank], cold[rank]):
            seen = _where(base[rank], cold[rank], {})
            place = {"engine": CONNECTOR, "arm": "cold", "prompt": prompt, "reference": "baseline cold", "rank": rank}
            yield Finding(RULE, Reason.FIRST_ANSWER_DIFFERS, {**place, **seen})
            return


def _external(view: CellView, table: Table, arm: str, prompt: int) -> Iterator[Finding]:
    cold = table.of(CONNECTOR, "cold", "computed", prompt)
    for rank, read in table.of(CONNECTOR, arm, "read", prompt).items():
        if rank in cold and not _equal(cold[rank], read):
            others = {
                other: digest.values
                for other in view.prompts
                if other != prompt and (digest := table.of(CONNECTOR, "cold", "computed", other).get(rank)) is not None
            }
            seen = _where(cold[rank], read, others)
            place = {"engine": CONNECTOR, "arm": arm, "prompt": prompt, "reference": "connector cold", "rank": rank}
            yield Finding(RULE, Reason.DIGEST_DIFFERS, {**place, **seen})
            return


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
