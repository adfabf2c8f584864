"""Stories of several engines on one store."""

from __future__ import annotations

from dataclasses import replace

import pytest

from e2e.base.connector import Abilities, HitRule
from e2e.base.program import Happened, Loaded, Served, Span, Start, Stop, Together
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


@pytest.mark.parametrize(
    ("name", "need"),
    [("restart", "survives_restart"), ("second", "shared_store"), ("cross", "survives_restart")],
)
def test_a_story_is_told_only_of_a_connector_that_states_what_it_needs(name, need):
    assert lacking(name, Abilities()) == f"scenario {name} needs a connector that states {need}."
    assert lacking(name, Abilities(**{need: True})) is None
    assert lacking("replay", Abilities()) is None
