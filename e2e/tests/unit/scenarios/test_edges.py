"""Scenarios at the edges of prompts, answers, steps and stores: what they send can provoke what they claim."""

from __future__ import annotations

from dataclasses import replace
from math import ceil

import pytest

from e2e.base.connector import Abilities, HitRule
from e2e.base.program import Cold, Happened, Loaded, Program, Send, Served, Text
from e2e.scenarios import abort, partial
from e2e.scenarios.sized import Sized
from e2e.scenarios.table import SCENARIOS, lacking

CELL = Sized(lengths=(513, 1030), rule=HitRule(256), block_size=16, step=512, answer=8)
SIZES = [
    CELL, replace(CELL, baseline=False), replace(CELL, rule=HitRule(16), step=None),
    replace(CELL, rule=HitRule(64), block_size=64), replace(CELL, block_size=128),
    replace(CELL, rule=HitRule(256, hold_back=2)),
]  # fmt: skip


def told(name: str, cell: Sized = CELL) -> Program:
    return SCENARIOS[name].program(cell)


def happened(send: Send) -> dict[str, int]:
    return {claim.what: claim.least for claim in send.claims if isinstance(claim, Happened)}


def external(program: Program, send: Send) -> list[int]:
    hits = program.hits(send)
    assert all(hit.external.least == hit.external.most for hit in hits), "nothing less will do"
    return [hit.external.most for hit in hits]


@pytest.mark.parametrize("cell", SIZES)
def test_the_next_turn_is_served_generated_tokens_and_both_caches_serve_as_many(cell):
    program = told("turns", cell)
    first, turn = (program.send(("connector", name)) for name in ("first", "next"))
    served = external(program, turn)
    for text, tokens in zip(turn.texts, served, strict=True):
        recipe = program.texts[text]
        computed = recipe.shared + first.answer - 1  # nobody computes the last token's
        assert recipe.shared == program.answered(text) < tokens <= computed
        assert cell.local(computed + 1) == tokens
        assert recipe.shared + first.answer < recipe.tokens, "something new is asked"
        assert cell.rule.external(recipe.tokens) == tokens, "and no unit of it, which would be served as well"
    assert happened(turn)["external"] > sum(served) - min(
        tokens - program.answered(text) for text, tokens in zip(turn.texts, served, strict=True)
    ), "one that falls short of its answer is seen"


def test_a_text_knows_where_its_first_answer_begins():
    follows = ("one", "first")
    texts = (Text(100), Text(150, like=0, shared=90, follows=follows), Text(200, like=1, shared=140, follows=follows))
    sites = SCENARIOS["turns"].program(CELL).sites[1:]
    program = Program(sites, (*texts, Text(120, like=1, shared=80)), ())
    assert [program.answered(index) for index in range(4)] == [None, 90, 90, None]


@pytest.mark.parametrize("cell", SIZES)
def test_steps_of_a_long_prompt_end_inside_blocks_and_units_and_its_lengths_beside_them(cell):
    program = told("long_prompt", cell)
    step = program.site("one").step
    assert all(site.step == step for site in program.sites)
    assert step % cell.block_size
    assert step % cell.unit
    assert step > 256, "vLLM takes no fewer than it may have sequences"
    lengths = [text.tokens for text in program.texts]
    rests = {n % cell.unit for n in lengths}
    assert {0, 1, cell.unit - 1} <= rests
    assert len(rests - {0, 1, cell.unit - 1}) >= (1 if cell.unit > cell.block_size else 0)
    assert all(n > 2 * step for n in lengths), "so some unit begins in one step and ends in another"
    cold = program.send(("one", "cold"))
    assert happened(cold) == {"prefill_steps": sum(ceil(n / step) for n in lengths)}


@pytest.mark.parametrize("cell", SIZES)
def test_of_what_is_under_way_anything_may_be_served_and_later_all(cell):
    program = told("zero_delay", cell)
    hot, settled = (program.send(("one", name)) for name in ("hot", "settled"))
    (may,) = program.hits(hot)
    assert (may.external.least, may.external.most) == (0, cell.hit(program.texts[0].tokens).external.most)
    assert external(program, settled) == [may.external.most]
    assert happened(hot) == {"lookups_beside_stores": 1}
    store_s = may.external.most / cell.rule.granularity * program.site("one").slow_s
    assert store_s == pytest.approx(4.0), "it comes while some of it is under way"
    assert settled.after_s > 2 * store_s, "all is stored twice by then"


@pytest.mark.parametrize("cell", SIZES)
def test_who_comes_after_an_aborted_load_needs_its_blocks(cell):
    program = told("abort", cell)
    one = program.site("one")
    span = program.texts[abort.VICTIM].tokens + cell.answer
    assert span + cell.block_size < one.kv_tokens < span + program.texts[abort.LOADED].tokens
    loading, victim, again = (program.send(("one", name)) for name in ("loading", "next", "local"))
    assert loading.texts == (abort.LOADED,)
    assert happened(loading) == {"gone": 1, "aborts": 1, "aborted_loads": 1}
    units = external(program, loading)[0] / cell.rule.granularity
    assert loading.gone_s < units * one.slow_s, "the client leaves while it loads"
    assert (victim.claim(Cold), again.claim(Loaded).step) == (Cold(), victim.where)
    assert victim.texts == again.texts == (abort.VICTIM,)
    assert again.after_s > units * one.slow_s, "whatever still wrote has written by then"
    storing = program.send(("one", "storing"))
    assert happened(storing) == {"gone": 1, "aborts": 1, "stores_after_end": 1}
    assert storing.answer >= 512, "a model of four layers gives 48 tokens before it is told that its client left"
    assert program.texts[abort.STORED].tokens + storing.answer < one.kv_tokens


@pytest.mark.parametrize("cell", SIZES)
def test_a_part_is_served_and_no_more_than_what_was_stored_begins_alike(cell):
    program = told("partial", cell)
    cold = program.send(("connector", "cold"))
    parts = [program.send(("connector", name)) for name in ("suffix", "extension", "rollback")]
    for send in parts:
        for text, tokens in zip(send.texts, external(program, send), strict=True):
            stored = max(program.common(text, other) for other in cold.texts)
            assert 0 < tokens <= stored
            assert tokens % cell.leg == 0, "the rest is computed in the steps of a cold run"
            assert text in (partial.EXTENSION, partial.ROLLBACK) or stored < program.texts[text].tokens
    mixed = program.send(("connector", "mixed"))
    (hit,) = program.hits(mixed)
    assert (hit.local.most, hit.external.most) == (cell.leg, cell.leg)
    assert happened(mixed) == {"local": cell.leg, "external": 1}
    regrown = program.send(("connector", "regrown"))
    assert external(program, regrown) == [3 * cell.leg, 2 * cell.leg], "what was computed behind a hit is stored"
    assert program.common(partial.SPLICED, partial.WHOLE) == 0


def test_what_a_story_needs_is_asked_of_the_connector():
    for name, need in (("turns", "next_turn"), ("zero_delay", "slowed"), ("abort", "slowed")):
        assert need in lacking(name, Abilities())
        assert lacking(name, Abilities(**{need: True})) is None
    assert "prefixes" in lacking("partial", Abilities(prefixes=False))


def test_a_length_that_the_connector_can_not_take_is_not_sent():
    program = told("long_prompt", replace(CELL, takes=lambda tokens: tokens % 256 != 0))
    assert [text.tokens % 256 for text in program.texts] == [255, 1, 5, 16]


def test_nothing_external_is_claimed_without_its_size():
    for name in ("turns", "long_prompt", "zero_delay", "abort", "partial"):
        served = [claim for send in told(name).sends for claim in send.claims if isinstance(claim, Served)]
        assert all(claim.hits for claim in served)
