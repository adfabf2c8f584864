"""On the bytes of real answers, vLLM 0.32 on a CPU."""

import itertools
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from e2e.base.errors import EngineAnswer
from e2e.replay.stream import StreamReader, error_message, events

STREAMS = Path(__file__).parents[2] / "recordings" / "streams"
ANSWER = (STREAMS / "vllm-0.32-answer.sse").read_bytes()
ERROR = (STREAMS / "vllm-0.32-error.sse").read_bytes()


def read(payloads, *, prompt_tokens=40):
    reader = StreamReader("r1", prompt_tokens)
    for tick, payload in enumerate(payloads, start=1):
        reader.take(payload, now_ns=tick * 10)
    return reader.finish(sent_ns=1, done_ns=1000)


def test_a_real_answer_is_read_whole_with_unrounded_logprobs():
    answer = read(events([ANSWER]))
    assert answer.token_ids[:2] == (8083, 231)
    assert len(answer.token_ids) == len(answer.logprobs) == len(answer.top) == 4
    assert answer.logprobs[0] == -1.9814895391464233
    assert answer.top[0]["token_id:8083"] == answer.logprobs[0]
    assert all(len(top) >= 5 for top in answer.top)
    assert (answer.finish_reason, answer.cached_tokens, answer.prompt_tokens) == ("length", 0, 40)
    assert (answer.sent_ns, answer.first_ns, answer.done_ns) == (1, 10, 1000)


def test_the_text_is_kept_per_token():
    payloads = [json.loads(payload) for payload in events([ANSWER])]
    pieces = [choice["text"] for payload in payloads for choice in payload["choices"]]
    answer = read(events([ANSWER]))
    assert len(answer.text) == len(answer.token_ids)
    assert "".join(answer.text) == "".join(pieces)


def test_text_of_several_tokens_is_readable_with_the_last():
    reader = StreamReader("r1", 4, wants_logprobs=False)
    for choice in ({"token_ids": [1, 2], "text": "ab"}, {"token_ids": [3], "text": ""}, {"text": "c"}):
        reader.take(json.dumps({"choices": [choice]}), now_ns=1)
    assert reader.text == ["", "ab", "c"]


@given(st.lists(st.integers(min_value=0, max_value=len(ANSWER)), max_size=20))
def test_chunk_borders_do_not_matter(cuts):
    borders = [0, *sorted(cuts), len(ANSWER)]
    chunks = [ANSWER[start:end] for start, end in itertools.pairwise(borders)]
    assert list(events(chunks)) == list(events([ANSWER]))


def test_an_event_is_given_before_the_next_chunk_is_asked_for():
    def chunks():
        yield b"data: 1\n\n"
        pytest.fail("asked for more before the first event was given")

    assert next(events(chunks())) == b"1"


def test_carriage_returns_and_comments_are_no_payload():
    assert list(events([b": ping\r\n\r\ndata:{}\r\n\r\ndata: [DONE]\r\n\r\ndata: late\n"])) == [b"{}"]


def test_the_first_token_is_timed_not_the_first_chunk():
    payloads = list(events([ANSWER]))
    empty = json.loads(payloads[0])
    empty["choices"][0] |= {"token_ids": [], "logprobs": None}
    assert read([json.dumps(empty), *payloads]).first_ns == 20


def test_an_error_inside_a_stream_raises_with_vllms_words():
    with pytest.raises(EngineAnswer, match="greater than max allowed: 20") as caught:
        read(events([ERROR]))
    assert caught.value.status == 200
    assert caught.value.cause.startswith("Requested sample logprobs of 50")


def edited(change):
    payloads = [json.loads(payload) for payload in events([ANSWER])]
    change(payloads)
    return [json.dumps(payload) for payload in payloads]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda p: p.pop(), "ended without usage"),
        (lambda p: p[-2]["choices"][0].update(finish_reason=None), "ended without finish_reason"),
        (lambda p: p[-2]["choices"][0].update(finish_reason="error"), "finish_reason 'error'"),
        (lambda p: p[1]["choices"][0].update(logprobs=None), "logprobs"),
        (lambda p: [c.update(token_ids=None) for q in p for c in q["choices"]], "no token ids"),
        (lambda p: p[-1]["usage"].update(prompt_tokens=41), "41 prompt tokens, but 40 were sent"),
        (lambda p: p.insert(1, [1]), "no object"),
        (lambda p: p.insert(1, {"object": "error", "message": "old style"}), "old style"),
    ],
)
def test_what_is_no_whole_answer_is_refused(change, message):
    with pytest.raises(EngineAnswer, match=message):
        read(edited(change))


def test_a_chunk_that_is_no_json_is_refused():
    with pytest.raises(EngineAnswer, match="no JSON"):
        read([b"<html>"])


def test_missing_details_are_unknown_cached_tokens():
    payloads = edited(lambda p: p[-1]["usage"].pop("prompt_tokens_details"))
    assert read(payloads).cached_tokens is None


@pytest.mark.parametrize("body", [{"error": {"message": "m"}}, {"message": "m"}, {"error": "m"}, "m"])
def test_error_bodies_of_all_versions(body):
    assert error_message(body) == "m"
