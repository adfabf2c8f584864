"""What is probed next: everything that can be had in turn, what gives nothing seldom, old objects when they are due."""

from __future__ import annotations

from collections import Counter
from contextlib import closing

import pytest

from e2e.canary.choice import LOCAL_EVERY, PATIENCE, Choice
from e2e.canary.lengths import Lengths
from e2e.canary.memory import AGES, Memory
from e2e.canary.segments import Segments
from e2e.canary.stories import Units

BEGIN = {"command": [], "versions": {}, "machine": {}, "settings": {}, "wall_time": ""}


@pytest.fixture
def play(tmp_path):
    """play(names, turns, saw) -> the probes that were chosen; ``saw(probe)``: external tokens that each was served."""
    with closing(Segments(tmp_path, keeps=1 << 22, begin=lambda: BEGIN)) as kept:

        def play(names, turns, saw, *, shared=lambda one, other: True, every_s=10.0):
            memory, chosen, now = Memory(Units()), [], 1000.0
            choice = Choice(names, Lengths(256, 1024), memory, shared)
            for turn in range(turns):
                now += every_s
                probe = choice.next(now)
                chosen.append(probe)
                served = saw(probe)
                memory.took(
                    kept.record(
                        "canary.probe", cell=None, story=probe.story, sites=list(probe.sites), tokens=probe.tokens,
                        stored=probe.program.texts[0].tokens, verdict="pass" if served is not None else "inconclusive",
                        reason="none" if served is not None else "no_hit", saw="exact" if served else "nothing",
                        noise=None, served=served, nonce=probe.nonce, salt=probe.salt, told=str(turn), wall_s=now,
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
        texts = {len(probe.program.texts) for probe in chosen if probe.sites == pair}
        assert texts == {1, 2}, "what is stored itself, and what shares with it"


def test_engines_without_a_common_store_are_asked_seldom(play):
    chosen = play(["a", "b"], 300, lambda probe: None if probe.story != "local" else 0, every_s=0.1)
    crosses = sum(probe.story == "cross" for probe in chosen)
    assert 2 * PATIENCE <= crosses < 100
    assert sum(probe.story == "local" for probe in chosen) > 150


def test_engines_of_other_models_are_never_paired(play):
    chosen = play(["a", "b"], 50, lambda probe: 0, shared=lambda one, other: False)
    assert {probe.story for probe in chosen} <= {"local", "later"}


def test_one_engine_stores_and_is_asked_again_at_all_ages(play):
    chosen = play(["a"], 330, lambda probe: 256 if probe.story == "later" else 0, every_s=600.0)
    later = [probe for probe in chosen if probe.story == "later"]
    assert {probe.of.nonce for probe in later} <= {probe.nonce for probe in chosen if probe.story == "local"}
    assert Counter(probe.of.nonce for probe in later).most_common(1)[0][1] == len(AGES)
    assert all(probe.salt == probe.of.salt for probe in later)
