"""The rerun beside its four arms: what is added, where it can be judged, and what it is judged by."""

from __future__ import annotations

from dataclasses import replace

import pytest

from e2e.base.connector import Abilities, HitRule
from e2e.base.program import Cold, Loaded, Missed, Program, Served
from e2e.grid.lengths import solve
from e2e.scenarios.arms import Arms
from e2e.scenarios.replay import Replay
from e2e.scenarios.sized import Sized

CELL = Sized(lengths=(513, 1032, 1552), rule=HitRule(256), block_size=16, step=512, answer=8, digests=True)
ADDED = {"beginning", "external_third", "afterwards", "other_salt"}


def told(cell: Sized = CELL, **changed) -> Program:
    return Replay().program(replace(cell, **changed))


def names(program: Program, site: str = "connector") -> list[str]:
    return [send.name for send in program.sends if send.site == site]


def hits(program: Program, name: str) -> list[tuple[int, int]]:
    send = program.send(("connector", name))
    return [(hit.local.most, hit.external.most) for hit in program.hits(send)]


def test_the_four_arms_are_told_as_they_were_and_then_more():
    arms, grown = names(Arms().program(CELL)), names(told())
    assert arms == ["cold", "local", "external", "external_again"]
    assert grown[:4] == arms
    assert {*grown[4:]} == ADDED


def test_the_longest_prompt_is_served_partly_by_each_cache():
    program = told()
    assert hits(program, "beginning") == [(0, 512)]
    assert hits(program, "external_third") == [(0, 512), (0, 1024), (512, 1024)]
    short = program.texts[program.send(("connector", "beginning")).texts[0]]
    assert (short.like, short.shared, short.tokens) == (2, 513, 513)


def test_everything_is_asked_once_more_and_with_it_what_only_a_key_without_its_prefix_would_find():
    program = told()
    assert hits(program, "afterwards") == [(512, 0), (1040, 0), (1536, 0), (256, 0)]
    mixed = program.texts[program.send(("connector", "afterwards")).texts[-1]]
    assert (mixed.like, mixed.shared, mixed.body, mixed.tokens) == (2, 256, 0, 513)
    compared = {where[1]: program.send(where) for where in program.send(("connector", "afterwards")).like}
    assert {"mixed", "mixed_cold", "mixed_local"} <= compared.keys()
    assert compared["mixed_cold"].claim(Cold)
    assert compared["mixed_cold"].salt == compared["mixed_local"].salt != ""


def test_another_salt_must_miss_and_what_it_may_get_is_held_against_what_was_computed():
    send = told().send(("connector", "other_salt"))
    assert send.salt == "other"
    assert send.claim(Missed)
    assert send.claim(Loaded)
    assert hits(told(), "other_salt") == [(0, 0)]


def test_keys_without_a_salt_are_not_asked():
    assert "other_salt" not in names(told(abilities=Abilities(salted=False)))


@pytest.mark.parametrize(
    "changed",
    [
        {"abilities": Abilities(prefixes=False)},
        {"rule": HitRule(256, short_by=256)},
        {"rule": HitRule(256, may_miss=True)},
        {"lengths": (513,)},
        {"takes": lambda tokens: tokens > 513},
    ],
)
def test_no_part_is_asked_for_where_nobody_knows_what_the_first_part_leaves(changed):
    program = told(**changed)
    assert "beginning" not in names(program)
    assert all(local == 0 for local, _ in hits(program, "external_third"))


def test_one_solved_length_is_no_whole_unit_of_anything():
    tokens = told().texts[1].tokens
    assert tokens % 256 not in (0, 1)
    assert tokens % 16 not in (0, 1)
    assert CELL.rule.external(tokens) < CELL.local(tokens) < tokens - 1


@pytest.mark.parametrize(
    "changed",
    [
        {"solved": False},
        {"digests": False, "step": None},
        {"digests": False, "at_once": 2},
        {"takes": lambda tokens: tokens != 1045},
        {"lengths": (513, 1552)},
    ],
)
def test_lengths_stay_where_nobody_could_judge_another_or_somebody_asked_for_them(changed):
    lengths = changed.get("lengths", CELL.lengths)
    assert tuple(text.tokens for text in told(**changed).texts[: len(lengths)]) == lengths


@pytest.mark.parametrize("block", [1, 16, 64, 128])
@pytest.mark.parametrize(("granularity", "hold_back"), [(1, 1), (16, 0), (16, 2), (100, 1), (256, 1), (1024, 1)])
@pytest.mark.parametrize("step", [None, 1024])
@pytest.mark.parametrize("baseline", [True, False])
def test_it_can_be_told_of_any_connector(block, granularity, hold_back, step, baseline):
    rule = HitRule(granularity, hold_back)
    lengths = solve(rule, step, block).lengths
    cell = replace(CELL, rule=rule, block_size=block, step=step, lengths=lengths, baseline=baseline)
    program = told(cell)
    served = [send for send in program.sends if send.external]
    assert {"external", "external_again", "external_third"} <= {send.name for send in served}
    assert all(hit.external.most for send in served for hit in program.hits(send))
    assert max(text.tokens for text in program.texts) <= max(lengths) + 2 * granularity + 2 * block


def test_what_is_added_asks_for_no_more_than_a_prefill_and_a_decode_step():
    program = told()
    added = [send for send in program.sends if send.name not in names(Arms().program(CELL))]
    assert {send.answer for send in added} == {2}
    assert all(send.answer is None for send in program.sends if send.claim(Served) and send.name == "external")
    assert {send.answer for send in told(answer=1).sends} == {None, 1}
