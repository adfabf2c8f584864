"""The cases of e2e/tests/cases do harm, or none, on one real engine and without the rig: the same requests with a
switch of the connector and with its right twin. Not ``never_freed``, which takes the engine with it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cache
from itertools import count

import pytest

from e2e.base.connector import ConnectorConfig
from e2e.replay.client import EngineClient
from e2e.replay.stream import Completion
from e2e.tests.engine.engines import ask, prompts

pytestmark = [pytest.mark.engine, pytest.mark.long, pytest.mark.timeout(900)]
#: Tokens of a short prompt, of a long one, and of one that fills two prefill steps and most of a third.
SHORT, LONG, STEPS = 300, 400, 1500
#: Logprobs in float32 repeat to some 1e-5 in other steps.
HARM = 0.01


@cache
def texts(*lengths: int) -> list[list[int]]:
    return prompts(list(lengths))


@dataclass
class Told:
    """One telling of a story: ``on`` is turned on in every request. ``salt``: of this telling alone."""

    client: EngineClient
    on: list[str]
    salt: str
    seeds: Iterator[int] = field(default_factory=lambda: count(1))

    def ask(self, tokens: list[int], *, answer: int = 16, salt: str = "") -> Completion:
        return ask(self.client, tokens, salt=self.salt + salt, params={"on": self.on}, max_tokens=answer)

    def forget(self) -> None:
        """What lies in the engine's own blocks is gone."""
        assert self.client.reset_prefix_cache()[0]
        self.client.collective_rpc("rig_overwrite_free_blocks", next(self.seeds))


def rerun(told: Told) -> list[Completion]:
    (text,) = texts(SHORT)
    told.ask(text)
    told.forget()
    return [told.ask(text, answer=32)]


def third(told: Told) -> list[Completion]:
    (text,) = texts(SHORT)
    told.ask(text)
    answers = []
    for _ in range(3):
        told.forget()
        answers.append(told.ask(text))
    return answers[2:]


def partly_local(told: Told) -> list[Completion]:
    (text,) = texts(LONG)
    told.ask(text)
    told.forget()
    told.ask(text[:129])
    return [told.ask(text)]


def one_after_the_other(told: Told) -> list[Completion]:
    """And the first once more, out of the engine's own cache."""
    one, other = texts(SHORT, LONG)
    for text in (one, other):
        told.ask(text)
    told.forget()
    for text in (one, other):
        told.ask(text)
    return [told.ask(one)]


def other_body(told: Told) -> list[Completion]:
    one, other = texts(256, 256)
    for text in (one, other):
        told.ask(text)
    told.forget()
    return [told.ask(one[:128] + other[128:])]


def two_at_once(told: Told) -> list[Completion]:
    """Both wait while a long prompt is computed, so that one step loads both."""
    one, other, long = texts(SHORT, LONG, STEPS)
    for text in (one, other):
        told.ask(text)
    told.forget()
    with ThreadPoolExecutor() as pool:
        work = [pool.submit(told.ask, text) for text in (long, one, other)]
    return [done.result() for done in work[1:]]


def next_turn(told: Told) -> list[Completion]:
    (text,) = texts(SHORT)
    answer = told.ask(text, answer=64)
    told.forget()
    again = told.ask([*text, *answer.token_ids, *text[:20]])
    assert again.cached_tokens > SHORT
    return [again]


def overwritten_soon(told: Told) -> list[Completion]:
    """The blocks hold something else a few steps after their request ended."""
    text, other = texts(SHORT, LONG)
    told.ask(text, answer=2)
    told.forget()
    told.ask(other, answer=40)
    told.forget()
    return [told.ask(text)]


def overflow(told: Told) -> list[Completion]:
    one, other = texts(LONG, LONG)
    for text in (one, other):
        told.ask(text)
    told.forget()
    return [told.ask(one)]


STORIES: dict[str, tuple[Callable[[Told], list[Completion]], list[str]]] = {
    "third_load": (third, []),
    "mixed_offset": (partly_local, []),
    "stray_write": (one_after_the_other, []),
    "unchained": (other_body, []),
    "mixed_loads": (two_at_once, []),
    "answer_short": (next_turn, []),
    "answer_spoilt": (rerun, []),
    "tail_reversed": (rerun, ["tail"]),
    "unheld": (overwritten_soon, []),
    "slot_reused": (overflow, ["small"]),
}


@pytest.fixture(scope="module")
def client(engine, tmp_path_factory):
    connector = ConnectorConfig(
        kv_connector="Switched", module_path="e2e.tests.cases.story_connectors", load_failure_policy="recompute",
        extra={"dir": str(tmp_path_factory.mktemp("store"))},
    )  # fmt: skip
    with engine(connector=connector) as started:
        yield started


def difference(expected: list[Completion], found: list[Completion]) -> float:
    """Largest difference of logprobs up to the first other token; infinite where the first token is another."""
    worst = 0.0
    for a, b in zip(expected, found, strict=True):
        pairs = list(zip(a.token_ids, b.token_ids, a.logprobs, b.logprobs, strict=True))
        same = next((i for i, (x, y, *_) in enumerate(pairs) if x != y), len(pairs))
        worst = max([worst, *(abs(x - y) for *_, x, y in pairs[:same])], default=0.0)
        worst = max(worst, abs(pairs[same][2] - pairs[same][3])) if same < len(pairs) else worst
    return worst


@pytest.mark.parametrize("switch", STORIES)
def test_a_broken_case_does_harm_and_its_twin_none(client, switch):
    story, twin = STORIES[switch]
    right, again, wrong = (story(Told(client, on, f"{switch} {n}")) for n, on in enumerate([twin, twin, [switch]]))
    assert difference(right, again) < HARM
    assert [one.token_ids for one in right] == [one.token_ids for one in again]
    assert difference(right, wrong) > HARM or [a.token_ids for a in right] != [a.token_ids for a in wrong]


def test_without_an_identity_another_salt_is_served(client):
    (text,) = texts(SHORT)
    served = {}
    for on in ([], ["no_identity"]):
        told = Told(client, on, "identity")
        told.ask(text)
        told.forget()
        served[tuple(on)] = told.ask(text, salt=" of another").cached_tokens or 0
    assert served == {(): 0, ("no_identity",): 288}


@pytest.mark.parametrize("switch", ["async_load", "round_down", "tail", "misses", "small", "fail_once"])
def test_an_unusual_case_does_none(client, switch):
    (text,) = texts(SHORT)
    plain = ask(client, text, salt=f"plain {switch}", params={"on": []}, max_tokens=16)
    told = Told(client, [switch], f"unusual {switch}")
    assert told.ask(text).token_ids == plain.token_ids
    for _ in range(3):
        told.forget()
        again = told.ask(text)
        assert again.token_ids == plain.token_ids
        assert difference([plain], [again]) < HARM
