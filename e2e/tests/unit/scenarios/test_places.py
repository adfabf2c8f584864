"""Stories of several engines on one store."""

from __future__ import annotations

from dataclasses import replace

import pytest

from e2e.base.connector import Abilities, HitRule
from e2e.base.program import (
    Cold,
    Happened,
    Like,
    Loaded,
    Missed,
    Program,
    Send,
    Served,
    Site,
    Span,
    Start,
    Stop,
    Text,
    Together,
)
from e2e.scenarios.sized import Sized
from e2e.scenarios.table import SCENARIOS, lacking

CELL = Sized(
    lengths=(513, 1030), rule=HitRule(256), block_size=16, step=256, answer=4, settings={"layout": "NHD"}
)  # fmt: skip


def test_a_restarted_engine_is_served_what_the_one_before_stored_asked_to_stop_or_killed():
    program = SCENARIOS["restart"].program(CELL)
    lives = [step for step in program.flat if isinstance(step, (Start, Stop))]
    assert [getattr(step, "killed", None) for step in lives] == [None, False, None, True, None, False]
    after = [send for send in program.sends if send.external]
    assert [send.claim(Happened) for send in after] == [Happened("engines_ended", n) for n in (1, 2)]
    assert all(send.claim(Loaded).step == ("one", "cold") for send in after)
    assert [hit.external.least for hit in after[0].claim(Served).hits] == [512, 1024]


@pytest.mark.parametrize(("layout", "other"), [("NHD", "HND"), ("HND", "NHD")])
def test_two_engines_of_different_layouts_serve_each_other(layout, other):
    program = SCENARIOS["second"].program(replace(CELL, settings={"layout": layout}))
    assert program.site("b").settings == {"layout": other}
    assert all(send.claim(Happened) for send in program.sends if program.site(send.site).connector)
    assert {send.site for send in program.sends if send.external} == {"a", "b"}
    beside = [{send.where for send in step.steps} for step in program.steps if isinstance(step, Together)]
    assert beside == [{("a", "more"), ("b", "while_it_stores")}, {("a", "at_once"), ("b", "at_once")}]


def test_without_layouts_both_engines_are_alike():
    assert not SCENARIOS["second"].program(replace(CELL, settings={})).site("b").settings


SETTINGS = {"layout": "HND", "storage_format": "layerwise", "dtype": "float32", "block_size": 16, "overlap": "on"}


def test_what_one_engine_stored_is_asked_for_under_each_other_setting():
    program = SCENARIOS["cross"].program(replace(CELL, settings=SETTINGS))
    differ = {site.name: dict(site.settings) for site in program.sites if site.settings}
    others = {"layout": "NHD", "storage_format": "chunkwise", "dtype": "bfloat16", "block_size": 32}
    assert differ == {axis: {axis: value} for axis, value in others.items()}
    for axis in others:
        asked = program.send((axis, "asked"))
        assert asked.claim(Served).hits[0].external == Span(0, 512)
        assert asked.claim(Loaded).step == (axis, "own"), "held against what that engine computes itself"
    assert program.send(("home", "again")).claim(Served).hits[0].external == Span(512, 512)


def test_what_a_request_brings_along_needs_no_engine_of_its_own():
    cell = replace(CELL, settings=SETTINGS, by_request=frozenset({"storage_format", "overlap"}))
    program = SCENARIOS["cross"].program(cell)
    assert "storage_format" not in {site.name for site in program.sites}
    own, asked = (program.send(("home", name)) for name in ("own_storage_format", "asked_storage_format"))
    assert dict(own.settings) == dict(asked.settings) == {"storage_format": "chunkwise"}
    assert (own.salt, asked.salt) == ("home_storage_format", ""), "what is computed is stored where nobody asks for it"
    here = [send for send in program.sends if send.site == "home"]
    loads = [send.external for send in here]
    assert loads == sorted(loads), "once something was loaded, nothing that is computed there says what is right"
    assert asked.claim(Loaded).step == own.where
    assert asked.claim(Served).hits[0].external == Span(0, 512)


def test_whoever_is_somebody_else_is_served_nothing_and_whoever_is_the_same_all():
    abilities = Abilities(lora=True)
    program = SCENARIOS["identity"].program(replace(CELL, settings={"dtype": "bfloat16"}, abilities=abilities))
    missed = [send for send in program.sends if send.claim(Missed)]
    assert {send.where for send in missed} == {
        ("connector", "other_salt"), ("connector", "lora_1"), ("connector", "lora_2"), ("tenant", "apart"),
        ("weights", "apart"), ("dtype", "apart"),
    }  # fmt: skip
    assert all(send.claim(Loaded) and send.claim(Like) for send in missed), "a hit is held against what is right"
    controls = {(send.site, send.lora) for send in program.sends if send.external}
    assert controls == {("connector", 0), ("connector", 1), ("connector", 2), *((s, 0) for s in program_sites(program))}
    assert program.adapters(program.site("baseline")) == program.adapters(program.site("connector")) == (1, 2)
    assert program.site("weights").weights
    assert dict(program.site("dtype").settings) == {"dtype": "float16"}


def program_sites(program):
    return [site.name for site in program.sites if not program.lent(site)]


def test_a_connector_without_lora_is_asked_for_no_adapter():
    program = SCENARIOS["identity"].program(CELL)
    assert not any(send.lora for send in program.sends)
    assert "dtype" not in {site.name for site in program.sites}


def test_what_other_weights_or_another_adapter_said_is_nothing_to_compare_with():
    sites = (Site("one"), Site("two", weights=1))
    cold = Send("cold", "one", (0,), (Cold(),))
    for other in (Send("x", "two", (0,), (Cold(), Like((cold.where,)))),
                  Send("x", "one", (0,), (Missed(), Loaded(cold.where)), lora=1)):  # fmt: skip
        with pytest.raises(ValueError, match="other weights or another adapter"):
            Program(sites, (Text(100),), (cold, other))


@pytest.mark.parametrize(
    ("name", "need"),
    [("restart", "survives_restart"), ("second", "shared_store"), ("cross", "survives_restart")],
)
def test_a_story_is_told_only_of_a_connector_that_states_what_it_needs(name, need):
    assert lacking(name, Abilities()) == f"scenario {name} needs a connector that states {need}."
    assert lacking(name, Abilities(**{need: True})) is None
    assert lacking("replay", Abilities(), elsewhere="--attach") is None
    assert "without --launcher docker" in lacking(name, Abilities(**{need: True}), elsewhere="--launcher docker")
