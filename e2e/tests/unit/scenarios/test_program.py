"""Programs are values: they survive the recording, and one that could not be judged can't be built."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from e2e.base.connector import HitRule
from e2e.base.program import (
    Break,
    Cold,
    Empty,
    Forget,
    Like,
    Loaded,
    Mend,
    Pool,
    Program,
    Scribble,
    Send,
    Served,
    Site,
    Span,
    Start,
    Stop,
    Text,
    Together,
    plainly,
    program_of,
)
from e2e.scenarios.sized import Sized
from e2e.scenarios.table import SCENARIOS

CELL = Sized(lengths=(513, 1030), rule=HitRule(256), block_size=16, step=256, answer=8)


ONE = (Site("one"),)


def one(*steps, sites=ONE) -> Program:
    return Program(sites, (Text(100),), steps)


COLD = Send("cold", "one", (0,), (Cold(),))
AGAIN = Send("again", "one", (0,), (Served(True), Loaded(("one", "cold"))))
WRONG = {
    "there is no site": (Forget("two"),),
    "sent twice": (COLD, COLD),
    "one request at a time": (msgspec.structs.replace(COLD, at_once=0),),
    "at least one token": (msgspec.structs.replace(COLD, answer=0),),
    "spreads its requests": (msgspec.structs.replace(COLD, spread_s=-1.0),),
    "over 0 to 600 seconds": (msgspec.structs.replace(COLD, spread_s=601.0),),
    "texts that there are not": (Send("cold", "one", (1,), (Cold(),)),),
    "one of Cold": (Send("cold", "one", (0,), (Like((("one", "cold"),)),)),),
    "not sent before": (Send("cold", "one", (0,), (Cold(), Like((("one", "warm"),)))),),
    "no claim looks at it": (COLD, Forget("one"), Scribble("one"), Send("again", "one", (0,), (Served(True),))),
    "overwritten first": (COLD, Forget("one"), AGAIN),
    "only who starts it": (Stop("one"),),
    "two things at once": (Together((COLD, Send("hot", "one", (0,), (Cold(),)))),),
    "broken twice": (Break("server", "kill", "a"), Break("server", "kill", "a")),
    "nothing to mend": (Break("server", "kill", "a"), Mend("server", "kill", "b")),
    "may end it": (Break("engine", "kill", "one"),),
    "could empty pool": (Start("one"), Stop("one"), Empty("pool")),
    "is started twice": (Start("one"), Start("one")),
    "does not run": (Start("one"), Stop("one"), COLD),
}


@pytest.mark.parametrize("why", WRONG)
def test_what_could_not_be_judged_can_not_be_built(why):
    with pytest.raises(ValueError, match=why):
        one(*WRONG[why])


TEXTS = {
    "nothing that it names": (Text(9, shared=3),),
    "does not stand before it": (Text(9, like=0, shared=3),),
    "more tokens than there are": (Text(9), Text(20, like=0, shared=10)),
    "answer that is not there": (Text(9), Text(20, like=0, shared=9, follows=("one", "none"))),
}


@pytest.mark.parametrize(
    ("site", "why"),
    [
        (Site("two", pool=Pool(512, evicts=True)), "another size"),
        (Site("two", pool=Pool(256, evicts=False)), "another size"),
        (Site("two", store="else", pool=Pool(0, evicts=True)), "no room at all"),
        (Site("two", kv_tokens=0), "no room at all"),
    ],
)
def test_a_store_has_one_size_and_nothing_has_none(site, why):
    one = Site("one", pool=Pool(256, evicts=True))
    with pytest.raises(ValueError, match=why):
        Program((one, msgspec.structs.replace(site, pool=site.pool or one.pool)), (Text(100),), (COLD,))


@pytest.mark.parametrize("why", TEXTS)
def test_texts_that_can_not_be_made_can_not_be_sent(why):
    send = Send("cold", "one", tuple(range(len(TEXTS[why]))), (Cold(),))
    with pytest.raises(ValueError, match=why):
        Program(ONE, TEXTS[why], (send,))


def test_what_a_lent_plain_engine_is_sent_stands_beside_nothing():
    plain = Site("plain", connector=False)
    with pytest.raises(ValueError, match="beside nothing"):
        Program((*ONE, plain), (Text(9),), (Together((COLD, Send("cold", "plain", (0,), (Cold(),)))),))


def test_nobody_follows_an_answer_while_it_is_given():
    texts = (Text(9), Text(20, like=0, shared=9, follows=("one", "cold")))
    beside = Together((COLD, Send("next", "two", (1,), (Cold(),))))
    with pytest.raises(ValueError, match="while it is given"):
        Program((*ONE, Site("two")), texts, (beside,))


def test_a_lent_plain_engine_has_nobodys_answer_but_its_own():
    plain = Site("plain", connector=False)
    texts = (Text(9), Text(20, like=0, shared=9, follows=("one", "cold")))
    with pytest.raises(ValueError, match="played before the answer"):
        Program((*ONE, plain), texts, (COLD, Send("next", "plain", (1,), (Cold(),))))


def test_each_rerun_needs_blocks_that_were_overwritten_since():
    steps = (COLD, Forget("one"), Scribble("one"), AGAIN)
    assert one(*steps).sends[-1].external
    with pytest.raises(ValueError, match="overwritten first"):
        one(*steps, msgspec.structs.replace(AGAIN, name="third"))


def test_a_plain_site_serves_nothing_external():
    with pytest.raises(ValueError, match="connector that is not there"):
        one(COLD, Forget("one"), Scribble("one"), AGAIN, sites=(Site("one", connector=False),))


@pytest.mark.parametrize("name", SCENARIOS)
@pytest.mark.parametrize("baseline", [True, False])
def test_a_program_survives_the_recording(name, baseline):
    cell = Sized(lengths=(513, 1030), rule=HitRule(256), block_size=16, step=256, answer=8, baseline=baseline)
    program = SCENARIOS[name].program(cell)
    again = program_of(msgspec.json.decode(msgspec.json.encode(plainly(program))))
    assert again == program
    assert again.digest == program.digest


def test_a_lost_claim_changes_the_digest():
    program = SCENARIOS["replay"].program(CELL)
    table = plainly(program)
    table["steps"][2]["claims"].pop()
    assert program_of(table).digest != program.digest


@pytest.mark.parametrize(
    ("rule", "least"),
    [
        (HitRule(16), (512, 1024)),
        (HitRule(16, short_by=48), (464, 976)),
        (HitRule(16, short_by=5000), (0, 0)),
        (HitRule(16, may_miss=True), (0, 0)),
    ],
)
def test_a_rerun_may_be_served_as_few_tokens_as_the_rule_says(rule, least):
    program = SCENARIOS["arms"].program(replace(CELL, rule=rule))
    spans = [hit.external for hit in program.send(("connector", "external")).claim(Served).hits]
    assert tuple(span.least for span in spans) == least
    assert tuple(span.most for span in spans) == (512, 1024)
    assert all(hit.external == Span(0, 0) for hit in program.send(("baseline", "local")).claim(Served).hits)
