"""Stories can be built, cost what is told, and are exact wherever a store serves whole chunks."""

from __future__ import annotations

import pytest

from e2e.base.program import Cold, Text
from e2e.canary import stories
from e2e.canary.lengths import Lengths, unit
from e2e.canary.memory import AGES
from e2e.canary.stories import Units

UNITS = [Units(16, 256), Units(16, 16), Units(128, 256, 2048), Units(16, 48)]


@pytest.mark.parametrize("units", UNITS)
def test_lengths_walk_over_all_remainders(units):
    lengths = Lengths(256, 1024)
    seen = [lengths.at(number, units) for number in range(4 * units.chunk)]
    assert all(256 <= tokens <= 1024 for tokens in seen)
    assert {tokens % units.chunk for tokens in seen} == {*range(units.chunk)}
    assert {tokens % units.block for tokens in seen} == {*range(units.block)}
    assert len({tokens // units.chunk for tokens in seen}) >= 3, "and over how many chunks there are"
    near = seen[: 2 * min(units.block, units.chunk) : 2]
    assert all(units.external(tokens) > 0 for tokens in near)
    assert len({tokens % units.chunk for tokens in near}) == min(units.block, units.chunk)


@pytest.mark.parametrize("units", UNITS)
def test_the_local_cache_serves_what_the_store_does(units):
    lengths = Lengths(256, 1024)
    for number in range(200):
        tokens = lengths.at(number, units)
        program = stories.cross("a", "b", tokens, units)
        local, external = program.send(("a", "local")), program.send(("b", "external"))
        (asked,) = local.texts
        shared = program.common(0, asked)
        has = units.local(tokens) if shared == tokens else shared // units.block * units.block
        assert has == units.external(tokens) or units.external(tokens) % units.block
        assert local.texts == external.texts
        assert local.salt == external.salt == program.send(("a", "cold")).salt, "the same KV"
        assert local.where in external.like


def test_they_are_told_apart_by_salt_and_none_resets_or_overwrites():
    units = Units()
    programs = [
        stories.cross("a", "b", 700, units), stories.later("a", 700, units), stories.local("a", 700, units),
        stories.crowd("a", "b", 700, units, 3),
        stories.anew(("a", "b"), stories.texts_of(700, units), units), stories.anew(("a",), (Text(700),), units),
    ]  # fmt: skip
    for program in programs:
        assert {type(step).__name__ for step in program.steps} == {"Send"}
        assert all(site.in_use for site in program.sites)
        colds = [(send.site, send.texts, send.salt) for send in program.sends if send.claim(Cold)]
        assert len({*colds}) == len(colds), "nothing that was computed is cold once more"
        assert sum(stories.cost(program, 12).values()) > sum(stories.stored(program).values()) > 0
    assert stories.cost(programs[0], 12) == {"a": 513 + 12 + 700 + 12, "b": 712}
    assert stories.stored(programs[0]) == {"a": 513}


def test_a_unit_is_learnt_from_what_was_served():
    assert unit([512, 768, 1280], 64) == 256
    assert unit([512, 512, 768], 64) == 64, "too little to tell"
    assert unit([0, 512, 768, 1280], 64) == 64


def test_what_is_computed_beside_an_old_object_is_in_no_store_yet():
    programs = [stories.later("a", 700, Units(), asked) for asked in range(len(AGES))]
    fresh = {program.send(("a", "cold")).salt for program in programs}
    assert len(fresh) == len(AGES), "as often as it is asked for"
    assert {program.send(("a", "old")).salt for program in programs} == {""}


def test_what_was_allowed_does_no_more_than_that():
    units = Units()
    steps = [type(step).__name__ for step in stories.reset("a", 700, units).steps]
    assert steps == ["Send", "Send", "Forget", "Send"]
    texts = stories.texts_of(700, units)
    for home, away in (("a", "b"), ("a", "a")):
        looked = stories.located(home, away, texts, units)
        assert {type(step).__name__ for step in looked.steps} == {"Send"}
        assert looked.send((away, "still")).salt == stories.cross("a", "b", 700, units).send(("b", "external")).salt


def test_several_at_once_cost_as_many():
    crowd = stories.crowd("a", "b", 300, Units(), 4)
    assert stories.cost(crowd, 12) == {"a": 4 * 312, "b": 4 * 312}
    assert stories.stored(crowd) == {"a": 1200}
