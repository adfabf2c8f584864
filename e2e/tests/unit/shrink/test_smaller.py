"""Smaller programs can be played, stay true of a right connector, and lead to a least that is known."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest
from fake import ONE, PLAIN, TEXTS, again, send
from hypothesis import find, given, settings
from hypothesis import strategies as st
from made import programs
from planted import fails, of_another_site, second_read, two_at_once

from e2e.base.connector import HitRule
from e2e.base.program import (
    Break,
    Cold,
    Forget,
    Loaded,
    Mend,
    Program,
    Scribble,
    Send,
    Served,
    Site,
    Start,
    Stop,
    Text,
    Together,
)
from e2e.scenarios.sized import Sized
from e2e.scenarios.table import SCENARIOS
from e2e.shrink.least import least
from e2e.shrink.smaller import halves, smaller
from e2e.shrink.trimming import without

CELL = Sized(lengths=(513, 1030, 1290), rule=HitRule(256), block_size=16, step=256, answer=8)
MOST = 400


def reduced(program: Program, still, *, unit: int = 100, answer: int = 8) -> Program | None:
    asked = []

    def fails(candidate: Program, fresh: bool) -> bool:
        asked.append(candidate)
        return still(candidate)

    found = least(program, lambda each: [made for _, made in smaller(each, unit=unit, answer=answer)], fails)
    assert len(asked) < MOST
    return found


def course(bug):
    return lambda program: fails(program, bug)


def big() -> Program:
    """Far more than any of the bugs needs."""
    alone, cold, two = send("alone", PLAIN), send("cold", ONE, at_once=2), Site("two")

    def rerun(name: str, site: Site):
        *before, looked = again(site, cold)
        return (*before, msgspec.structs.replace(looked, name=name, at_once=2))

    mend = Mend("server", "suspend", "index")
    steps = (
        alone, cold, send("warm", ONE), *rerun("first", ONE), *rerun("second", ONE),
        Break("server", "suspend", "index"), mend,
        Start("two"), *rerun("there", two), Stop("two"), Start("two"), *rerun("here", two), Stop("two"),
    )  # fmt: skip
    return Program((PLAIN, ONE, two), TEXTS, steps, "big")


def names(program: Program) -> list[str]:
    return [send.name for send in program.sends]


LEAST = {
    second_read: (["cold", "first", "second"], 1, ["one"]),
    two_at_once: (["cold", "first"], 2, ["one"]),
    of_another_site: (["cold", "there"], 1, ["one", "two"]),
}


@pytest.mark.parametrize("bug", LEAST)
def test_a_planted_bug_shrinks_to_the_least_that_brings_it_out(bug):
    found = reduced(big(), course(bug))
    sends, texts, sites = LEAST[bug]
    assert (names(found), len(found.texts), [site.name for site in found.sites]) == (sends, texts, sites)
    assert {send.at_once for send in found.sends if send.external} == {texts}
    assert all(send.answer == 1 for send in found.sends)
    assert not any(isinstance(step, (Break, Mend, Stop)) for step in found.flat)


def test_the_one_text_that_fails_is_left():
    found = reduced(big(), lambda program: any(text.tokens == 200 for text in program.texts), unit=1000)
    assert found.texts == TEXTS[1:]
    assert len(found.sends) == 1


def test_what_does_not_fail_is_not_shrunk():
    assert reduced(big(), lambda program: False) is None


@settings(max_examples=60, deadline=None)
@given(programs(), st.sampled_from([second_read, two_at_once, of_another_site]))
def test_whatever_program_fails_its_least_fails_too_and_no_part_of_it(program, bug):
    still = course(bug)
    found = reduced(program, still)
    assert (found is not None) is still(program)
    if found is None:
        return
    assert still(found)
    assert not any(still(candidate) for _, candidate in smaller(found, unit=100, answer=8))
    assert len(found.texts) == (2 if bug is two_at_once else 1)
    assert len(found.sends) <= 3


def test_hypothesis_finds_the_bug_and_comes_to_as_little_as_the_reducer():
    still = course(second_read)
    example = find(programs(), still, settings=settings(max_examples=2000, database=None, deadline=None))
    assert len(reduced(example, still).sends) <= len(example.sends)
    assert len(reduced(example, still).sends) == 3


@pytest.mark.parametrize("name", SCENARIOS)
def test_each_step_of_the_way_from_a_scenario_can_be_played(name):
    program = SCENARIOS[name].program(CELL)
    found = reduced(program, lambda each: any(send.external for send in each.sends), unit=CELL.leg)
    assert [send.external for send in found.sends].count(True) == 1
    answering = {text.follows[0] for text in found.texts if text.follows}
    served = {send.site for send in found.sends if send.external}
    looked = {claim.step[0] for send in found.sends for claim in send.claims if isinstance(claim, Loaded)}
    assert {site.name for site in found.sites} <= served | answering | looked
    assert found.scenario == name
    assert len(found.sends) <= len(program.sends)


@settings(max_examples=100, deadline=None)
@given(programs())
def test_smaller_ones_name_only_what_is_there_and_are_smaller(program):
    for what, candidate in smaller(program, unit=100, answer=8):
        assert what
        assert candidate != program
        assert {send.where for send in candidate.sends} <= {send.where for send in program.sends}
        assert sum(1 for _ in candidate.flat) <= sum(1 for _ in program.flat)


def test_who_was_served_by_what_is_gone_goes_too():
    cold = send("cold", ONE)
    program = Program((ONE,), TEXTS, (cold, *again(ONE, cold)))
    assert without(program, steps=(0,)) is None
    left = without(program, texts=(0,))
    assert left.texts == TEXTS[1:]
    assert [send.texts for send in left.sends] == [(0,), (0,)]
    assert without(program, texts=(0, 1)) is None


def test_a_hit_that_is_partly_local_needs_both():
    partial = SCENARIOS["partial"].program(CELL)
    left = without(partial, steps=[i for i, step in enumerate(partial.flat) if getattr(step, "name", "") == "rollback"])
    assert "rollback" not in names(left)
    assert "mixed" not in names(left), "what it had from vLLM's own cache is not there"


def sized(*lengths: int) -> Program:
    """Cold, local and external, with what each text is served."""
    cell = replace(CELL, lengths=lengths)
    local, far = (tuple(cell.hit(n, local=at(n)) for n in lengths) for at in (cell.local, lambda n: 0))
    texts = tuple(range(len(lengths)))
    cold = Send("cold", "one", texts, (Cold(),))
    warm = Send("warm", "one", texts, (Served(False, local),))
    again = Send("again", "one", texts, (Served(True, far), Loaded(cold.where)))
    return Program((ONE,), tuple(map(Text, lengths)), (cold, warm, Forget("one"), Scribble("one"), again))


def test_hits_are_named_beside_the_texts_that_are_left():
    left = without(sized(513, 1030, 1290), texts=(1,))
    assert left.send(("one", "again")).claim(Served).hits == (CELL.hit(513), CELL.hit(1290))
    assert left.send(("one", "again")).texts == left.send(("one", "warm")).texts == (0, 1)


def test_a_shorter_prompt_is_served_less_by_just_that():
    made = dict(smaller(sized(1030), unit=CELL.leg, answer=8))
    found = made["text 0 512 tokens shorter"]
    assert found.texts == (Text(518),)
    assert found.send(("one", "again")).claim(Served).hits == (CELL.hit(518),)
    assert found.send(("one", "warm")).claim(Served).hits == (CELL.hit(518, local=CELL.local(518)),)
    assert "text 0 1024 tokens shorter" not in made


def test_texts_that_share_something_get_shorter_together():
    program = SCENARIOS["partial"].program(CELL)
    for what, made in smaller(program, unit=CELL.leg, answer=8):
        if "shorter" in what:
            assert all(text.shared > 0 for text in made.texts if text.like is not None), what


def test_a_step_alone_is_no_longer_beside_another():
    two = Site("two")
    cold, hot = send("cold", ONE), send("hot", two)
    program = Program((ONE, two), TEXTS, (Together((cold, hot)),))
    assert without(program, sites=("two",)).steps == (Send("cold", "one", (0, 1), cold.claims),)


def test_nothing_is_forgotten_for_nobody():
    cold = send("cold", ONE)
    program = Program((ONE,), TEXTS, (cold, *again(ONE, cold), Forget("one"), send("late", ONE)))
    last = sum(1 for _ in program.flat) - 1
    assert not any(isinstance(step, Forget) for step in list(without(program, steps=(last,)).flat)[-1:])


@pytest.mark.parametrize("count", range(1, 9))
def test_halves_come_down_to_each_alone(count):
    parts = list(halves(count))
    assert all(0 < len(part) < count or count == 1 for part in parts)
    assert {place for part in parts[:2] for place in part} == ({*range(count)} if count > 1 else set())
    assert [part[0] for part in parts[-count:]] == (list(reversed(range(count))) if count > 1 else [])
