"""Whoever is served a part computes the rest, and stores it. In other steps than those of a cold run that is rounding:
nothing that is held to the bit may rest on it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from msgspec import structs

from e2e.base.connector import Abilities, HitRule
from e2e.base.program import Empty, Hit, Like, Loaded, Program, Send, Site
from e2e.scenarios.sized import Sized
from e2e.scenarios.soak import Soak
from e2e.scenarios.table import STORIES

CELL = Sized(
    lengths=(513, 1032, 1552), rule=HitRule(256, hold_back=1), block_size=16, step=512, answer=4, digests=True,
    for_s=300.0,
    abilities=Abilities(
        pool_bytes=2 << 30, shared_store=True, survives_restart=True, lora=True, next_turn=True, slowed=True,
        breakable="index-server",
    ),
    settings={"layout": "HND", "storage_format": "layerwise", "overlap": "on", "placement": "kernel"},
    by_request=frozenset({"storage_format", "placement"}),
)  # fmt: skip
CELLS = (
    CELL, replace(CELL, baseline=False), replace(CELL, block_size=32), replace(CELL, rule=HitRule(16)),
    replace(CELL, rule=HitRule(512), lengths=(1025, 1544, 2064)), replace(CELL, settings={"load": "async"}),
)  # fmt: skip
#: In ``cross`` everything is served, or nothing.
STORIES = {story.name: story for story in STORIES if story.name != "cross"}
STORIES["soak"] = Soak([*STORIES.values()])


def rests_on_rounding(program: Program, cell: Sized) -> Iterator[str]:
    """Sends that are served what may be rounding, though they claim what it is. What is rounding: store, salt, weights
    and adapter, text -> the token from which on it may be."""
    rounding: dict[tuple[object, ...], int] = {}
    for step in program.flat:
        if isinstance(step, Empty):
            rounding = {of: at for of, at in rounding.items() if of[0] != step.store}
        if not isinstance(step, Send) or not program.site(step.site).connector:
            continue
        site, stored = program.site(step.site), []
        for text, hit in zip(step.texts, program.hits(step), strict=True):
            own = (site.store, step.salt, program.identity(step))
            if hit.external.most and (step.claim(Like) or step.claim(Loaded)):
                reached = hit.local.most + hit.external.most
                if any(
                    of[:-1] == own and at < min(program.common(text, of[-1]), reached) for of, at in rounding.items()
                ):
                    yield " ".join(step.where)
            if (at := _goes_on_from(cell, site, hit, program.texts[text].tokens)) is not None:
                stored.append(((*own, text), at))
        for of, at in stored:
            rounding[of] = min(at, rounding.get(of, at))


def _goes_on_from(cell: Sized, site: Site, hit: Hit, tokens: int) -> int | None:
    """The first token from which on it may compute in other steps than a cold run, with a unit to store behind it."""
    least, most = (hit.local.least + hit.external.least, hit.local.most + hit.external.most)
    ends = {most, *range(-(-least // cell.unit) * cell.unit, most, cell.unit)}
    return min((at for at in ends if at % (site.step or cell.step) and at < cell.rule.external(tokens)), default=None)


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("name", STORIES)
def test_nothing_that_is_held_to_the_bit_rests_on_what_was_stored_by_whom_a_part_was_served(name, cell):
    assert not [*rests_on_rounding(STORIES[name].program(cell), cell)]


@pytest.mark.parametrize("name", ["zero_delay", "struck", "eviction", "full", "broken_server"])
def test_without_steps_of_a_unit_it_would(name):
    program = STORIES[name].program(CELL)
    assert {site.step for site in program.sites} == {CELL.unit}
    coarse = tuple(structs.replace(site, step=None) for site in program.sites)
    assert [*rests_on_rounding(structs.replace(program, sites=coarse), CELL)]
