"""Cells that ran side by side: every form of the report says that nothing was timed, and none has a time."""

from __future__ import annotations

import io

import pytest
from test_judge_oracle import verdict
from test_true_figures import timed, untimed

from e2e.base.event import REQUIRED, Event
from e2e.base.judgement import NOT_TIMED, Judgement
from e2e.judge.exhibits import exhibits
from e2e.report import console
from e2e.report.facts import facts
from e2e.report.files import RENDERERS
from e2e.report.overhead import overhead, sentence
from e2e.report.terminal import console as terminal

#: What stands there instead.
SAYS = {
    "report.md": "not timed", "report.html": "not timed", "report.json": NOT_TIMED, "report.csv": NOT_TIMED,
    "junit.xml": 'name="ttft" value="not timed"', "console": "not timed",
}  # fmt: skip
#: Of three prompts without a connector: seconds of all, of each.
TIMES = ("0.60 s", "0.6", "0.200")


def written(recording, tmp_path) -> dict[str, str]:
    events = recording.build()
    judgement = Judgement((verdict(recording),))
    found = facts(events, exhibits(events, judgement, None))
    screen = io.StringIO()
    console.show(found, judgement, on=terminal(screen), directory=tmp_path)
    return {"console": screen.getvalue(), **{name: render(found, judgement) for name, render in RENDERERS.items()}}


@pytest.mark.parametrize("form", SAYS)
def test_every_form_says_it_and_has_no_time(form, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    alone = written(timed(baseline=200, cold=300, external=50), tmp_path)[form]
    beside = written(untimed(), tmp_path)[form]
    assert SAYS[form] in beside
    assert SAYS[form] not in alone
    assert form == "junit.xml" or any(time in alone for time in TIMES)
    assert not any(time in beside for time in TIMES[:1] + TIMES[2:])
    assert "TTFT per prompt length" not in beside


def test_the_floor_is_the_slowest_start_and_the_busiest_engine_key():
    sent = dict.fromkeys(("cell", "arm", "prompt", "params", "salt"))
    done = dict.fromkeys(("token_ids", "logprobs", "top", "finish_reason", "cached_tokens", "first_ns"))
    start = {"role": "connector", "attempt": 1, "argv": [], "launcher": "process", "log": None}
    events = [Event("plan.cell", {**_planned(), "timed": False})]
    for engine, key, ready_s, answer_s in (("a1", "a", 20, 3), ("a2", "a", 30, 4), ("b1", "b", 10, 5)):
        events += [
            Event("engine.start", {**start, "engine": engine, "engine_key": key}),
            Event("engine.ready", {"engine": engine, "start_s": float(ready_s)}),
            Event("request.sent", {**sent, "engine": engine, "request": engine}),
            Event("request.done", {**done, "request": engine, "sent_ns": 0, "done_ns": answer_s * 10**9}),
        ]
    figures = overhead(events, total_s=44.4)
    assert figures == {"total_s": 44.4, "starts_s": 30.0, "tokens_s": 7.0, "ratio": 1.2, "digest_share": None}
    assert "1.20 times what the slowest engine start (30.0 s) and" in sentence(figures, beside=True)


def _planned() -> dict:
    return {**dict.fromkeys(REQUIRED["plan.cell"]), "cell": "a-x", "engine_key": "a"}
