"""What a target is known by, its restarts, and why it is left alone."""

from __future__ import annotations

import pytest
from targets import COUNTERS

from e2e.base.errors import EngineAnswer, EngineCrashed, EngineError, EngineTimeout
from e2e.canary.budget import Bucket, Pauses, Share
from e2e.canary.target import Identity, Target, remembering, why


class Client:
    """Says what a test wants."""

    def __init__(self) -> None:
        self.prompt_tokens, self.version_ = 1000, "0.32.0"

    def metrics(self) -> str:
        return (COUNTERS % 0).replace(" 1000", f" {self.prompt_tokens}")

    def models(self) -> list[str]:
        return ["m", "an-adapter"]

    def version(self) -> str:
        return self.version_

    def tokenize(self, text: str) -> list[int]:
        return [*text.encode()]


@pytest.fixture
def target():
    return Target("a", "http://a", Client(), Bucket(100, 6000), Bucket(100, 1000, level=1000), Share(0.5), Pauses())


def test_one_that_was_started_anew_is_asked_again_who_it_is(target):
    target.look(0)
    assert target.ask() == Identity("m", "0.32.0")
    target.client.prompt_tokens = 2000
    target.look(10)
    assert (target.restarts, target.identity) == (0, Identity("m", "0.32.0"))
    target.client.prompt_tokens, target.client.version_ = 5, "0.33.0"
    target.look(20)
    assert (target.restarts, target.identity) == (1, None)
    assert target.ask().version == "0.33.0"


def test_why_it_is_left_alone(target):
    assert target.why_not(100, 100, 0) == "budget"
    assert target.why_not(100, 100, 1) == "share", "nothing is known of it yet"
    target.look(0)
    target.client.prompt_tokens = 2000
    target.look(10)
    assert target.why_not(100, 100, 10) == ""
    target.paid(900, 950, 10)
    assert target.why_not(200, 100, 10) == "budget"
    assert target.why_not(100, 100, 10) == "store_budget"
    assert target.why_not(100, 100, 11) == ""
    assert target.why_not(500, 100, 16) == "share"
    target.pauses.trouble(16)
    assert target.why_not(100, 100, 16) == "paused"
    assert (target.spent, target.stored) == (900, 950)


@pytest.mark.parametrize(
    ("error", "name"),
    [
        (EngineTimeout("late"), "timeout"),
        (EngineCrashed("gone"), "unreachable"),
        (EngineAnswer("no", status=429), "http_429"),
        (EngineAnswer("odd", status=200), "garbage"),
        (EngineError("else"), "engine_error"),
    ],
)
def test_trouble_has_a_short_name(error, name):
    assert why(error) == name


def test_documents_are_encoded_once():
    asked = []

    def encode(text: str) -> list[int]:
        asked.append(text)
        return [len(text)]

    once = remembering(encode)
    assert [once("long text"), once("long text"), once("other")] == [[9], [9], [5]]
    assert asked == ["long text", "other"]
