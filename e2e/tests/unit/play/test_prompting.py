"""Prompts that go on from an answer hold that answer, of their own cell."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from fake import ONE, PLAIN

from e2e.base.errors import EngineError
from e2e.base.program import Cold, Program, Send, Text
from e2e.play.prompting import Prompts

WORDS = " ".join(f"w{number}" for number in range(900))
FIRST = Send("first", "one", (0,), (Cold(),))
NEXT = Send("next", "one", (1,), (Cold(),))
CHAT = Program((ONE,), (Text(100), Text(180, like=0, shared=100, follows=("one", "first"))), (FIRST, NEXT))


def encode(text):
    return [hash(word) % 10**9 for word in text.split()]


@pytest.fixture
def prompts():
    made = Prompts([WORDS], encode, run="r/1")
    made.build("K", CHAT)
    return made


def answer(*tokens):
    return [SimpleNamespace(token_ids=tokens)]


def test_the_next_turn_holds_the_answer_of_its_own_cell(prompts):
    for cell, tokens in (("a", (1, 2, 3)), ("b", (4, 5, 6))):
        prompts.answered("K", cell, FIRST, answer(*tokens))
    (first,), (of_a,), (of_b,) = (
        prompts.of("K", cell, CHAT, s) for cell, s in (("a", FIRST), ("a", NEXT), ("b", NEXT))
    )
    assert of_a.token_ids[:103] == (*first.token_ids, 1, 2, 3)
    assert of_b.token_ids[100:103] == (4, 5, 6)
    assert len(of_a) == len(of_b) == 180
    assert of_a.index == 1


def test_what_a_lent_plain_engine_answered_belongs_to_every_cell():
    alone = Send("alone", "plain", (0,), (Cold(),))
    chat = Program((PLAIN, ONE), (Text(100), Text(180, like=0, shared=100, follows=alone.where)), (alone, NEXT))
    prompts = Prompts([WORDS], encode, run="r/1")
    prompts.build("K", chat)
    prompts.answered("K", None, alone, answer(7, 8))
    (turn,) = prompts.of("K", "a", chat, NEXT)
    assert turn.token_ids[100:102] == (7, 8)


def test_without_the_answer_there_is_no_next_turn(prompts):
    prompts.answered("K", "a", FIRST, [None])
    with pytest.raises(EngineError, match="the answer of one first"):
        prompts.of("K", "a", CHAT, NEXT)


def test_prompts_are_built_once_by_whoever_tells_tokens_first():
    prompts = Prompts([WORDS], None, run="r/1")
    prompts.build("K", CHAT)
    prompts.build("K", CHAT, encode)
    (first,) = prompts.of("K", "a", CHAT, FIRST)
    prompts.build("K", CHAT, lambda text: [1] * len(text))
    assert prompts.of("K", "a", CHAT, FIRST) == [first]
