"""Scenarios in which something is broken on purpose: what they break, in which order, and what must come of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from e2e.base.connector import Abilities, HitRule
from e2e.base.program import Break, Happened, Like, Loaded, Mend, Program, Send, Start, Stop, Together
from e2e.play.nemesis import known
from e2e.scenarios.sized import Sized
from e2e.scenarios.struck import MOVED_S
from e2e.scenarios.table import SCENARIOS

CELL = Sized(
    lengths=(513, 776, 1040), rule=HitRule(256), block_size=16, step=256, answer=8, digests=True,
    abilities=Abilities(breakable="index-server", survives_restart=True, slowed=True),
)  # fmt: skip
SIZES = [CELL, replace(CELL, rule=HitRule(16)), replace(CELL, block_size=128), replace(CELL, step=None)]
NAMES = ("broken_server", "struck")


def told(name: str, cell: Sized = CELL) -> Program:
    return SCENARIOS[name].program(cell)


def happened(send: Send) -> dict[str, int]:
    return {claim.what: claim.least for claim in send.claims if isinstance(claim, Happened)}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("cell", SIZES)
def test_the_nemesis_knows_what_is_to_be_broken_and_each_blow_is_claimed(name, cell):
    program = told(name, cell)
    known(program)
    broken: set[tuple[str, str, str]] = set()
    for step in program.flat:
        if isinstance(step, Break):
            broken.add((step.what, step.how, step.target))
        elif isinstance(step, Mend):
            broken.remove((step.what, step.how, step.target))
        elif isinstance(step, Stop):
            broken -= {words for words in broken if words[2] == step.site}
        elif isinstance(step, Send) and broken and step.name != "kept":
            assert happened(step), step.name
    assert not broken


@pytest.mark.parametrize("policy", ["fail", "recompute"])
def test_each_policy_meets_each_damage_and_answers_as_it_says(policy):
    program = told("broken_server")
    assert program.site(policy).settings == {"load_failure_policy": policy}
    for how in ("lose", "tear", "truncate", "replace"):
        hurt, mended = (program.send((policy, name)) for name in (how, f"mended_{how}"))
        assert happened(hurt) == {"load_failures": 1, "refused" if policy == "fail" else "answered": 1}
        for send in (hurt, mended):
            assert send.claim(Like)
            assert send.claim(Loaded)
        (hit,) = program.hits(mended)
        assert hit.external.least == hit.external.most > 0, "it is served again"


def test_what_is_served_while_a_server_fails_is_as_much_as_is_there():
    program = told("broken_server")
    for where in (("fail", "kill"), ("fail", "suspend"), ("recompute", "restart"), ("recompute", "slow")):
        (hit,) = program.hits(program.send(where))
        assert hit.external.least == 0 < hit.external.most
    ways = {(step.what, step.how) for step in program.flat if isinstance(step, Break)}
    assert {("server", how) for how in ("kill", "restart", "suspend", "slow")} < ways
    assert ("space", "fill") in ways


def test_an_object_is_replaced_by_another_one_of_its_prompt():
    for cell in SIZES:
        assert told("broken_server", cell).texts[0].tokens > 2 * cell.rule.granularity


def test_an_engine_is_struck_amid_its_work_and_others_come_after_it():
    program = told("struck")
    blows = [step for step in program.steps if isinstance(step, Together)]
    assert [[part.how for part in blow.steps if isinstance(part, Break)] for blow in blows] == [
        ["kill_amid_store"], ["kill_amid_load"],
    ]  # fmt: skip
    victims = [part for blow in blows for part in blow.steps if isinstance(part, Send)]
    struck = [part for blow in blows for part in blow.steps if isinstance(part, Break)]
    assert [victim.after_s for victim in victims] == [blow.after_s for blow in struck], "it waits for no other's work"
    assert all(victim.after_s > MOVED_S for victim in victims), "what the warm-up stored is moved by then"
    assert [happened(victim) for victim in victims] == [{"stores_cut_short": 1}, {"loads_cut_short": 1}]
    assert sum(isinstance(step, Start) for step in program.steps) == 3
    stored, loaded = (program.hits(program.send(("one", name)))[0].external for name in ("stored", "loaded"))
    assert (stored.least, loaded.least) == (0, loaded.most), "what a load was killed over is still there"


@pytest.mark.parametrize("name", NAMES)
def test_who_has_nothing_to_break_is_told_no_such_story(name):
    assert "breakable" in SCENARIOS[name].needs
