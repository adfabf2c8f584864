"""Where less than all may be served, the report says what was."""

from __future__ import annotations

import pytest

from e2e.base.event import Event
from e2e.report.facts import facts

DONE = {
    "token_ids": [1], "logprobs": [0.0], "top": [{}], "finish_reason": "length", "sent_ns": 0, "first_ns": 1,
    "done_ns": 2,
}  # fmt: skip
PLACE = {"engine": "K.dtype.1", "cell": "C", "arm": "asked"}


def told(*answers: int, least: int | None = 0) -> list[Event]:
    events = [("engine.start", {"engine": PLACE["engine"], "engine_key": "K", "role": "dtype", "launcher": "none",
                                "attempt": 1, "argv": [], "log": ""})]  # fmt: skip
    for prompt, cached in enumerate(answers):
        expect = {**PLACE, "prompt": prompt, "tokens": 513, "local": 0, "external": 512, "digest": "d"}
        request = {"request": f"r{prompt}", **PLACE, "prompt": prompt, "params": None, "salt": None}
        events += [
            ("expect.hit", expect | ({} if least is None else {"least_local": 0, "least_external": least})),
            ("request.sent", request),
            ("request.done", {**DONE, "request": f"r{prompt}", "cached_tokens": cached}),
        ]
    return [Event(kind, data, t_ns=0) for kind, data in events]


@pytest.mark.parametrize(
    ("answers", "says"),
    [((0, 0), "a clean miss (of 1024 tokens)"), ((512, 0), "served 512 of 1024 tokens"), ((None,), "a clean miss")],
)
def test_what_was_served_where_it_might_not_be(answers, says):
    (line,) = facts(told(*answers)).served
    assert line.startswith(f"C dtype asked: {says}")


def test_what_was_to_be_served_is_no_news():
    assert facts(told(512, least=None)).served == []
