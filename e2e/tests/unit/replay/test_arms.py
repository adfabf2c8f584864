import os
import signal
import threading
import time

import pytest

from e2e.base.errors import EngineAnswer, EngineCrashed, EngineTimeout, Stopped
from e2e.base.event import Event
from e2e.base.program import Hit, Span
from e2e.replay.arms import Sending, forget, moments, run_arm, scribble, warm_up, warm_up_prompts
from e2e.replay.prompts import Prompt
from e2e.replay.stream import Completion

PROMPTS = [Prompt(token_ids=(index, *range(20)), secret=str(index), index=index) for index in range(4)]
ANSWER = Completion(
    token_ids=(1,),
    logprobs=(-0.5,),
    top=({"token_id:1": -0.5},),
    finish_reason="length",
    prompt_tokens=21,
    cached_tokens=16,
    sent_ns=1,
    first_ns=2,
    done_ns=3,
)


class Journal:
    def __init__(self):
        self.events = []
        self._lock = threading.Lock()

    def __call__(self, kind, **data):
        event = Event(kind, data)
        with self._lock:
            self.events.append(event)
        return event

    @property
    def kinds(self):
        return [event.kind for event in self.events]

    def of(self, kind):
        return [event for event in self.events if event.kind == kind]


class Client:
    """Stands where the HTTP client does; ``failing`` is the index of a prompt that gets ``error``."""

    def __init__(self, journal, *, failing=None, error=None):
        self.journal, self.failing, self.error = journal, failing, error
        self.calls = []

    def complete(self, token_ids, *, request_id, **options):
        assert request_id in [event["request"] for event in self.journal.of("request.sent")]
        self.calls.append((token_ids, options))
        if token_ids[0] == self.failing:
            raise self.error
        time.sleep(0.01)
        return ANSWER


HIT = Hit(Span(0, 0), Span(16, 16))
PLACE = {"engine": "e", "cell": "c", "arm": "external"}


def run(client, journal, *, hits=(HIT, HIT, HIT, HIT), **how):
    how = {"params": {"placement": "kernel"}, "salt": "s", "cell": "NHD-chunkwise", "arm": "external"} | how
    return run_arm(client, Sending(engine="NHD.connector.1", **how), prompts=PROMPTS, hits=hits, record=journal)


def between(client, journal, *, at_work=lambda: 0):
    free = forget(client, place=PLACE, record=journal)
    scribble(client, place=PLACE, record=journal, free=free, at_work=at_work)


def test_each_request_is_expected_then_sent_then_done():
    journal = Journal()
    client = Client(journal)
    assert run(client, journal) == [ANSWER] * 4
    assert journal.kinds == ["arm.begin", *["expect.hit", "request.sent", "request.done"] * 4, "arm.end"]
    expect, sent, done = journal.events[4:7]
    assert (expect["prompt"], expect["tokens"], expect["local"], expect["external"]) == (1, 21, 0, 16)
    assert expect["digest"] == PROMPTS[1].digest
    assert (sent["params"], sent["salt"], sent["cell"], sent["arm"]) == (
        {"placement": "kernel"}, "s", "NHD-chunkwise", "external",
    )  # fmt: skip
    assert done["request"] == sent["request"]
    assert (done["cached_tokens"], done["logprobs"], done["first_ns"]) == (16, (-0.5,), 2)
    assert len({event["request"] for event in journal.of("request.sent")}) == 4
    assert client.calls[0][1] == {
        "max_tokens": 8, "cache_salt": "s", "kv_transfer_params": {"placement": "kernel"}, "limit_s": 120.0,
        "most_tokens": None, "model": None,
    }  # fmt: skip
    assert "model" not in sent.data


def test_an_adapter_is_asked_by_its_name_and_that_is_recorded():
    journal = Journal()
    client = Client(journal)
    run(client, journal, model="lora-1")
    assert {event["model"] for event in journal.of("request.sent")} == {"lora-1"}
    assert {call[1]["model"] for call in client.calls} == {"lora-1"}


def test_several_at_once_keep_the_order_of_answers_and_of_each_requests_events():
    journal = Journal()
    assert len(run(Client(journal), journal, at_once=4)) == 4
    assert (journal.kinds[0], journal.kinds[-1]) == ("arm.begin", "arm.end")
    for sent in journal.of("request.sent"):
        kinds = [event.kind for event in journal.events if event.data.get("prompt") == sent["prompt"]]
        assert kinds == ["expect.hit", "request.sent"]
    assert {e["request"] for e in journal.of("request.done")} == {e["request"] for e in journal.of("request.sent")}


@pytest.mark.parametrize("at_once", [1, 2])
def test_an_error_ends_the_arm(at_once):
    journal = Journal()
    client = Client(journal, failing=0, error=EngineAnswer("refused.", status=500))
    with pytest.raises(EngineAnswer):
        run(client, journal, at_once=at_once)
    failed = journal.of("request.failed")
    assert [(e["error"], e["message"], e["status"]) for e in failed] == [("EngineAnswer", "refused.", 500)]
    assert len(client.calls) <= at_once
    assert "arm.end" not in journal.kinds
    # whatever was sent has its end in the journal
    assert len(journal.of("request.sent")) == len(journal.of("request.done")) + len(failed)


def test_a_signal_waits_for_no_request_that_is_on_its_way():
    journal, answered = Journal(), threading.Event()

    class Hanging(Client):
        def complete(self, token_ids, **options):
            self.calls.append(token_ids)
            answered.wait(60)
            return ANSWER

    def stop(number, frame):
        raise Stopped(number)

    client, before = Hanging(journal), signal.signal(signal.SIGUSR1, stop)
    threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGUSR1)).start()
    try:
        began_s = time.monotonic()
        with pytest.raises(Stopped):
            run(client, journal, at_once=2)
        assert time.monotonic() - began_s < 40
    finally:
        signal.signal(signal.SIGUSR1, before)
        answered.set()
    assert len(client.calls) == 2
    assert "arm.end" not in journal.kinds


def test_a_crash_has_no_status():
    journal = Journal()
    with pytest.raises(EngineCrashed):
        run(Client(journal, failing=2, error=EngineCrashed("gone.")), journal)
    assert journal.of("request.failed")[0]["status"] is None
    assert len(journal.of("request.done")) == 2


def test_every_prompt_has_its_prediction():
    journal = Journal()
    with pytest.raises(ValueError):
        run(Client(journal), journal, hits=[HIT])
    assert not journal.events


def test_those_at_once_can_be_spread_over_a_while_at_the_same_moments_each_time():
    told = {name: moments(name, 50, 2.0) for name in ("one", "two")}
    assert all(0 <= moment <= 2.0 for each in told.values() for moment in each)
    assert max(told["one"]) - min(told["one"]) > 1.0
    assert told["one"] == moments("one", 50, 2.0)
    assert told["one"] != told["two"]
    assert moments("one", 3, 0.0) == [0.0] * 3
    journal = Journal()
    assert len(run(Client(journal), journal, at_once=4, spread_s=0.02)) == 4
    assert (journal.kinds[0], journal.kinds[-1]) == ("arm.begin", "arm.end")


def test_a_span_is_told_by_both_ends_and_a_number_by_one():
    journal = Journal()
    run(Client(journal), journal, hits=[HIT, Hit(Span(0, 16), Span(0, 8)), HIT, HIT])
    exact, loose, *_ = journal.of("expect.hit")
    assert "least_external" not in exact.data
    assert (loose["least_local"], loose["local"], loose["least_external"], loose["external"]) == (0, 16, 0, 8)


def test_a_client_that_goes_away_after_some_tokens_has_as_long_for_them_as_others():
    journal = Journal()
    client = Client(journal, failing=1, error=EngineTimeout("it was left after 3 tokens"))
    run(client, journal, gone_tokens=3)
    assert [event["error"] for event in journal.of("request.failed")] == ["ClientGone"]
    assert {(options["limit_s"], options["most_tokens"]) for _, options in client.calls} == {(120.0, 3)}


@pytest.mark.parametrize("at_once", [1, 2])
def test_a_client_that_goes_away_ends_nothing_and_is_counted(at_once):
    journal = Journal()
    client = Client(journal, failing=1, error=EngineTimeout("it did not finish within 0.5 s"))
    answers = run(client, journal, gone_s=0.5, at_once=at_once)
    assert [answer is None for answer in answers] == [False, True, False, False]
    assert [(e["error"], e["status"]) for e in journal.of("request.failed")] == [("ClientGone", None)]
    assert [(e["what"], e["count"]) for e in journal.of("step.seen")] == [("gone", 1)]
    assert {options["limit_s"] for _, options in client.calls} == {0.5}
    assert journal.kinds[-1] == "arm.end"


def test_what_fails_while_something_is_broken_is_told_and_ends_nothing():
    journal = Journal()
    answers = run(
        Client(journal, failing=1, error=EngineAnswer("no", status=500)), journal, forgives=lambda error: True
    )
    assert answers.count(None) == 1
    assert [e["error"] for e in journal.of("request.failed")] == ["EngineAnswer"]
    assert journal.kinds[-1] == "arm.end"
    assert not journal.of("step.seen")


WORDS = [" ".join(f"w{number}" for number in range(900))]


def encode(text: str) -> list[int]:
    return [hash(word) % 10**9 for word in text.split()]


class Resetting:
    def __init__(self, *, reset=(True, 1), overwrite=({"blocks": 41},)):
        self.reset, self.overwrite, self.seeds = reset, overwrite, []

    def reset_prefix_cache(self, limit_s):
        if isinstance(self.reset, Exception):
            raise self.reset
        return self.reset

    def collective_rpc(self, method, seed, *, timeout):
        assert method == "rig_overwrite_free_blocks"
        self.seeds.append(seed)
        if isinstance(self.overwrite, Exception):
            raise self.overwrite
        return list(self.overwrite)


NO_SUCH = EngineAnswer("no such method.", status=500)


@pytest.mark.parametrize(
    ("client", "reset", "overwritten"),
    [
        (Resetting(), (True, 1), (True, 41)),
        (Resetting(overwrite=NO_SUCH), (True, 1), (False, 0)),
        (Resetting(overwrite=({"blocks": 41}, None)), (True, 1), (False, 0)),
        (Resetting(overwrite=()), (True, 1), (False, 0)),
        (Resetting(reset=(None, 4)), (None, 4), (True, 41)),
    ],
)
def test_forget_and_scribble_record_what_it_could_do(client, reset, overwritten):
    journal = Journal()
    between(client, journal)
    local, free = journal.of("reset.local")[0], journal.of("overwrite.free")[0]
    assert (local["ok"], local["tries"]) == reset
    assert (free["ok"], free["blocks"]) == overwritten
    assert client.seeds == [free["seed"]]


@pytest.mark.parametrize("reset", [(False, 9), EngineAnswer("no dev mode.", status=404)])
def test_nothing_is_overwritten_while_blocks_may_be_in_use(reset):
    journal, client = Journal(), Resetting(reset=reset)
    between(client, journal)
    assert client.seeds == []
    assert journal.of("reset.local")[0]["ok"] is False
    assert journal.of("overwrite.free")[0]["ok"] is False


def test_nothing_is_overwritten_while_somebody_elses_requests_run():
    journal, client = Journal(), Resetting(reset=(None, 4))
    between(client, journal, at_work=lambda: 2)
    assert client.seeds == []
    assert journal.of("overwrite.free")[0]["ok"] is False
    assert "2 requests of others" in journal.of("note")[0]["text"]


def test_the_warm_up_never_outgrows_the_engine():
    assert [len(one) for one in warm_up_prompts(WORDS, encode, step=512, longest=513, nonce="n")] == [513]
    more = warm_up_prompts(WORDS, encode, step=512, longest=700, more=[700, 650, 1, 700, 701], nonce="n")
    assert [len(one) for one in more][1:] == [700, 650], "each once, as far as one can be made and was made for"


def test_a_dead_engine_raises_between_two_steps():
    with pytest.raises(EngineCrashed):
        between(Resetting(overwrite=EngineCrashed("gone.")), Journal())


def test_the_warm_up_is_longer_than_a_step_and_sent_twice_with_one_salt():
    (prompt,) = warm_up_prompts(WORDS, encode, step=512, longest=900, nonce="n")
    assert 512 < len(prompt) < 700
    calls = []

    class Sent:
        def complete(self, token_ids, **options):
            calls.append((token_ids, options))

    warm_up(Sent(), prompt)
    assert [call[0] for call in calls] == [prompt.token_ids] * 2
    assert calls[0][1]["cache_salt"] == calls[1][1]["cache_salt"] != ""
    assert calls[0][1]["request_id"] != calls[1][1]["request_id"]
    # the first may compile something; the second is a request as any, and hangs where blocks are never freed
    assert calls[0][1]["limit_s"] == 300
    assert calls[1][1]["limit_s"] is None
