"""What is probed next: everything that can be had in turn, what gives nothing seldom, old objects when they are due."""

from __future__ import annotations

from collections import Counter
from contextlib import closing

import pytest

from e2e.canary.choice import CROWDS, LOCAL_EVERY, PATIENCE, Choice
from e2e.canary.lengths import Lengths
from e2e.canary.memory import AGES, Memory
from e2e.canary.segments import Segments
from e2e.canary.stories import Units

BEGIN = {"command": [], "versions": {}, "machine": {}, "settings": {}, "wall_time": ""}


@pytest.fixture
def play(tmp_path):
    """play(names, turns, saw) -> the probes that were chosen; ``saw(probe)``: external tokens that each was served.
    ``compared``: could that be held against anything?"""
    with closing(Segments(tmp_path, keeps=1 << 22, begin=lambda: BEGIN)) as kept:

        def play(names, turns, saw, *, shared=lambda one, other: True, every_s=10.0, resets=False, compared=True):
            memory, chosen, now = Memory(Units()), [], 1000.0
            choice = Choice(names, Lengths(256, 1024), memory, shared, resets=resets)
            for turn in range(turns):
                now += every_s
                probe = choice.next(now)
                chosen.append(probe)
                served = saw(probe)
                memory.took(
                    kept.record(
                        "canary.probe", cell=None, story=probe.story, sites=list(probe.sites), tokens=probe.tokens,
                        stored=probe.program.texts[0].tokens,
                        verdict="pass" if served is not None and compared else "inconclusive",
                        reason="none" if served is not None else "no_hit",
                        saw="exact" if served and compared else "nothing",
                        noise={}, served=served, nonce=probe.nonce, salt=probe.salt, told=str(turn), wall_s=now,
                        spent={}, of=probe.of.nonce if probe.of else None,
                        age_s=now - probe.of.stored_s if probe.of else None,
                    )
                )  # fmt: skip
            return chosen

        yield play


def test_all_pairs_are_asked_lengths_of_both_kinds(play):
    chosen = play(["a", "b", "c"], 120, lambda probe: 256, every_s=0.1)
    pairs = Counter(probe.sites for probe in chosen if probe.story == "cross")
    assert len(pairs) == 6
    assert min(pairs.values()) > 10
    assert sum(probe.story == "local" for probe in chosen) == 120 // LOCAL_EVERY
    for pair in pairs:
        texts = {len(probe.program.texts) for probe in chosen if probe.sites == pair and probe.story == "cross"}
        assert texts == {1, 2}, "what is stored itself, and what shares with it"
    crowds = {send.at_once for probe in chosen if probe.story == "crowd" for send in probe.program.sends}
    assert crowds == {1, *CROWDS}, "alone and some at once"


def test_engines_without_a_common_store_are_asked_seldom(play):
    chosen = play(["a", "b"], 300, lambda probe: None if probe.story != "local" else 0, every_s=0.1)
    crosses = sum(probe.story == "cross" for probe in chosen)
    assert 2 * PATIENCE <= crosses < 100
    assert sum(probe.story == "local" for probe in chosen) > 150


def test_engines_whose_noise_is_not_known_yet_have_a_common_store_all_the_same(play):
    chosen = play(["a", "b"], 100, lambda probe: 256, compared=False, every_s=0.1)
    assert sum(probe.story in ("cross", "crowd") for probe in chosen) == 100 - 100 // LOCAL_EVERY


def test_engines_of_other_models_are_never_paired(play):
    chosen = play(["a", "b"], 50, lambda probe: 0, shared=lambda one, other: False)
    assert {probe.story for probe in chosen} <= {"local", "later"}


def test_one_engine_stores_and_is_asked_again_at_all_ages(play):
    chosen = play(["a"], 330, lambda probe: 256 if probe.story == "later" else 0, every_s=600.0)
    later = [probe for probe in chosen if probe.story == "later"]
    assert {probe.of.nonce for probe in later} <= {probe.nonce for probe in chosen if probe.story == "local"}
    assert Counter(probe.of.nonce for probe in later).most_common(1)[0][1] == len(AGES)
    assert all(probe.salt == probe.of.salt for probe in later)


def test_a_lone_engine_is_reset_where_that_is_allowed_and_shows_something(play):
    assert "reset" not in {probe.story for probe in play(["a"], 50, lambda probe: 0)}
    chosen = Counter(probe.story for probe in play(["a"], 100, lambda probe: 256, resets=True, every_s=0.1))
    assert chosen == {"reset": 95, "local": 5}
    refused = Counter(probe.story for probe in play(["a"], 100, lambda probe: None, resets=True, every_s=0.1))
    assert PATIENCE <= refused["reset"] < 30
    assert "reset" not in {probe.story for probe in play(["a", "b"], 100, lambda probe: 256, resets=True)}
