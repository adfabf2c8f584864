"""The soak: drawn by lot from all other stories, the same for the same seed, and all that they claim is claimed."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import islice
from types import SimpleNamespace

import pytest

from e2e.base.connector import Abilities, HitRule
from e2e.base.program import Break, Empty, Happened, Mend, Program, Send, Start, Stop, plainly, program_of
from e2e.part import KV_SPARE
from e2e.play.nemesis import known
from e2e.scenarios.mix import LEFT, mixed
from e2e.scenarios.sized import Sized
from e2e.scenarios.soak import drawn, reckoned_s
from e2e.scenarios.table import SCENARIOS, STORIES

CELL = Sized(
    lengths=(513, 776, 1040), rule=HitRule(256), block_size=16, step=256, answer=8, digests=True,
    abilities=Abilities(
        breakable="index-server", survives_restart=True, slowed=True, shared_store=True, sized_pool=True, lora=True,
        next_turn=True, pool_bytes=2 << 30,
    ),
    settings={
        "layout": "HND", "storage_format": "layerwise", "placement": "index", "dtype": "bfloat16", "block_size": 16,
        "chunk_tokens": 256,
    },
)  # fmt: skip
LONG = replace(CELL, for_s=1200.0)
SOAK = SCENARIOS["soak"]


def blows(program: Program) -> list[tuple[str, str, str]]:
    return [(step.what, step.how, step.target) for step in program.flat if isinstance(step, Break)]


def test_the_same_seed_makes_the_same_program_and_the_same_blows():
    one, again, other = (SOAK.program(replace(LONG, seed=seed)) for seed in (7, 7, 8))
    assert plainly(one) == plainly(again)
    assert one.digest == again.digest != other.digest
    assert blows(one) == blows(again) != []


def test_a_seed_s_draw_is_what_it_was_in_every_version():
    """A reproduce command of last year must not tell another story."""
    stories = [SimpleNamespace(name=name) for name in "abcdef"]
    assert "".join(story.name for story in islice(drawn(stories, 3), 12)) == "fcadbeefdbca"
    assert "".join(story.name for story in islice(drawn(stories[::-1], 3), 12)) == "fcadbeefdbca", (
        "whatever their order"
    )


def test_every_story_is_told_before_one_is_told_again():
    names = [story.name for story in islice(drawn(STORIES, 1), 2 * len(STORIES))]
    assert {*names[: len(STORIES)]} == {*names[len(STORIES) :]} == {story.name for story in STORIES}


@pytest.mark.parametrize("seed", range(4))
def test_it_takes_about_as_long_as_it_is_given(seed):
    longest = max(reckoned_s(story.program(CELL)) for story in STORIES)
    for for_s in (60.0, 600.0):
        spent = reckoned_s(SOAK.program(replace(CELL, seed=seed, for_s=for_s)))
        assert for_s - longest - 60 <= spent <= for_s * 1.5 + longest
    assert SOAK.program(replace(CELL, seed=seed, for_s=1.0)).sends, "one story is told in any case"


@pytest.mark.parametrize("seed", range(4))
def test_all_events_of_its_stories_are_claimed_and_all_blows_known(seed):
    program = SOAK.program(replace(LONG, seed=seed))
    told = [story for story in STORIES if any(claims(story) & claims_of(program))]
    assert len(told) > len(STORIES) / 2
    counted = claims_of(program)
    for story in SOAK.tellable(CELL):
        assert claims(story) <= counted, story.name
    known(program)
    assert program_of(plainly(program)) == program


def claims_of(program: Program) -> set[str]:
    return {claim.what for send in program.sends for claim in send.claims if isinstance(claim, Happened)}


def claims(story) -> set[str]:
    return claims_of(story.program(CELL))


def test_a_connector_that_lacks_an_ability_is_told_no_story_that_needs_it():
    plain = replace(LONG, abilities=Abilities())
    assert {story.name for story in SOAK.tellable(plain)} < {story.name for story in STORIES}
    assert blows(SOAK.program(plain)) == []


def test_what_a_story_starts_ends_with_it_and_what_it_breaks_is_mended():
    program = SOAK.program(LONG)
    running: set[str] = set()
    broken: set[tuple[str, str, str]] = set()
    story = ""
    for step in program.flat:
        if isinstance(step, Start):
            running.add(step.site)
        elif isinstance(step, Stop):
            running.remove(step.site)
        elif isinstance(step, Send) and story != (story := step.name.rpartition("_")[2]):
            assert not broken, "the story before is mended"
            assert running <= sites_of(program, story), "and its engines have ended"
        elif isinstance(step, Break) and step.what != "engine":
            broken.add((step.what, step.how, step.target))
        elif isinstance(step, Mend):
            broken.remove((step.what, step.how, step.target))
    assert not running | broken


def sites_of(program: Program, story: str) -> set[str]:
    return {send.site for send in program.sends if send.name.endswith(f"_{story}")}


def test_a_store_is_emptied_before_it_holds_too_much():
    program = SOAK.program(LONG)
    emptied = [step.store for step in program.flat if isinstance(step, Empty)]
    assert emptied
    held: Counter[str] = Counter()
    sent = set()
    for step in program.flat:
        if isinstance(step, Empty):
            held[step.store] = 0
            sent.clear()
        elif isinstance(step, Send) and (store := program.site(step.site).store):
            fresh = {(store, text, step.salt) for text in step.texts} - sent
            sent |= fresh
            held[store] += sum(program.texts[text].tokens for _, text, _ in fresh)
            assert held[store] <= LEFT + 10_000


def test_engines_that_are_alike_are_one_and_have_room_for_any_of_their_stories():
    two = [SCENARIOS[name].program(CELL) for name in ("replay", "partial", "replay")]
    program = mixed(two, block_size=16, answer=8, scenario="soak")
    assert [site.name for site in program.sites] == ["baseline", "connector"]
    assert len(program.texts) == sum(len(story.texts) for story in two)
    assert {send.name.rpartition("_")[2] for send in program.sends} == {"1", "2", "3"}
    needs = max(sum(text.tokens for text in story.texts) for story in two)
    assert program.site("connector").kv_tokens > needs * KV_SPARE


def test_two_engines_of_one_story_are_two_however_alike_they_are():
    """Of a connector that has no layouts the engines of ``second`` differ in nothing."""
    second = SCENARIOS["second"].program(replace(CELL, settings={}))
    program = mixed([second, second], block_size=16, answer=8, scenario="soak")
    assert [site.name for site in program.sites] == ["baseline", "a", "b"]


def test_servers_of_two_stores_are_not_taken_for_each_other():
    two = [SCENARIOS[name].program(CELL) for name in ("eviction", "broken_server")]
    program = mixed(two, block_size=16, answer=8, scenario="soak")
    small, large = (program.site(name).store for name in ("one", "fail"))
    assert small != large
    assert {target for what, _, target in blows(program) if what == "server"} == {f"{large}/index-server"}
    assert {target for what, _, target in blows(program) if what == "object"} == {large}
