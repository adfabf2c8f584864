"""Scenarios that put a connector under pressure: what they send, and that what is claimed can come about."""

from __future__ import annotations

from dataclasses import replace

import pytest

from e2e.base.connector import HitRule
from e2e.base.program import Happened, Like, Loaded, Program, Send, Span
from e2e.scenarios.sized import Sized
from e2e.scenarios.table import SCENARIOS

CELL = Sized(lengths=(513, 776, 1040), rule=HitRule(256), block_size=16, step=256, answer=8)
SIZES = [CELL, replace(CELL, lengths=(50,), rule=HitRule(16), block_size=16), replace(CELL, block_size=128)]


def told(name: str, cell: Sized = CELL) -> Program:
    return SCENARIOS[name].program(cell)


def happened(send: Send) -> dict[str, int]:
    return {claim.what: claim.least for claim in send.claims if isinstance(claim, Happened)}


@pytest.mark.parametrize("name", ["preemption", "crowd", "eviction", "full"])
@pytest.mark.parametrize("cell", SIZES)
def test_what_is_loaded_under_pressure_is_held_against_what_was_computed_alone(name, cell):
    program = told(name, cell)
    alone, cold, *later = program.sends
    assert (alone.at_once, cold.at_once) == (1, 1)
    assert all(send.claim(Loaded).step == cold.where for send in later)
    assert set(later[-1].claim(Like).steps) == {alone.where, cold.where}
    assert later[-1].at_once == 1
    assert [send.name for send in program.sends if happened(send)], "its event is claimed"


@pytest.mark.parametrize("cell", SIZES)
def test_all_of_a_preemption_start_and_not_all_can_go_on(cell):
    """Three prompts and their first answer blocks fit, and the next block of each does not."""
    program = told("preemption", cell)
    hot, block = program.send(("one", "hot")), cell.block_size
    tokens = program.texts[0].tokens
    room = program.site("one").kv_tokens // block - 1  # the null block
    prompt, grown = -(-tokens // block), -(-(tokens + hot.answer) // block)
    assert 3 * prompt <= room < 3 * min(prompt + 1, grown)
    assert grown <= room, "one alone must fit"
    assert happened(hot) == {"preemptions": 1, "resumed_loads": 1}
    assert hot.at_once == len(hot.texts) > 3


def test_a_crowd_comes_together_and_then_one_after_the_other():
    together, spread = (told("crowd").send(("one", name)) for name in ("together", "spread"))
    assert happened(together) == {"batch": 2, "reads_in_one_step": 2}
    between_steps = told("crowd", replace(CELL, settings={"load": "async"}))
    assert happened(between_steps.send(("one", "together"))) == {"batch": 2}, "loads end one by one"
    assert (together.at_once, together.spread_s) == (8, 0.0)
    assert (spread.at_once, spread.spread_s) == (8, 1.0)
    assert {text.tokens for text in told("crowd").texts} == {*CELL.lengths}
    assert together.answer >= 32, (
        "loads that end one by one found no company, once in ten, where an answer had 4 tokens"
    )


def test_after_a_crowd_each_is_asked_for_once_more_where_it_was_loaded():
    """No Forget stands between, so a block that somebody else's load wrote into is read again."""
    steps = told("crowd").steps
    for name in ("together", "spread"):
        at = next(number for number, step in enumerate(steps) if isinstance(step, Send) and step.name == name)
        after = steps[at + 1]
        assert (after.name, after.texts) == (f"{name}_afterwards", steps[at].texts)
        assert not after.external
        assert after.claim(Loaded).step == ("one", "cold")
        assert [hit.local.least for hit in told("crowd").hits(after)] == [
            CELL.local(told("crowd").texts[text].tokens) for text in after.texts
        ]


@pytest.mark.parametrize("cell", SIZES)
@pytest.mark.parametrize(("name", "counted"), [("eviction", "evictions"), ("full", "no_room")])
def test_a_small_pool_holds_some_texts_and_not_all(name, counted, cell):
    program = told(name, cell)
    pool, whole = program.site("one").pool, cell.rule.external(program.texts[0].tokens)
    assert 2 * whole <= pool.tokens < 3 * whole < whole * len(program.texts)
    assert pool.tokens % cell.rule.granularity == 0
    assert pool.evicts is (name == "eviction")
    _, cold, *later = program.sends
    assert happened(cold) == {counted: 1}
    assert all(happened(send) == {counted: 1, "external": 1} for send in later)
    assert {hit.external for send in later for hit in program.hits(send)} == {Span(0, whole)}
    assert later[0].texts == later[1].texts[::-1], "in the old order each would be gone when it is asked for"
