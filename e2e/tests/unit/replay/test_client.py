import socket
import threading
import time
from pathlib import Path

import pytest
from misbehaving import STREAM, send, serve

from e2e.base.errors import EngineAnswer, EngineCrashed, EngineTimeout, SettingsError
from e2e.replay.client import EngineClient

ANSWER = (Path(__file__).parents[2] / "recordings" / "streams" / "vllm-0.32-answer.sse").read_bytes()
PROMPT = list(range(100, 140))


def complete(url, **options):
    return EngineClient(url, timeout_s=5).complete(PROMPT, request_id="r1", max_tokens=4, **options)


def test_the_request_asks_for_all_that_the_oracle_needs():
    with serve(lambda handler, _: send(handler, ANSWER, kind=STREAM)) as (url, seen):
        answer = complete(url, cache_salt="s", kv_transfer_params={"placement": "kernel"})
    path, headers, body = seen.requests[0]
    assert path == "/v1/completions"
    assert headers["X-Request-Id"] == "r1"
    assert body == {
        "prompt": PROMPT,
        "max_tokens": 4,
        "temperature": 0,
        "seed": 0,
        "ignore_eos": True,
        "stream": True,
        "stream_options": {"include_usage": True},
        "return_token_ids": True,
        "return_tokens_as_token_ids": True,
        "logprobs": 5,
        "cache_salt": "s",
        "kv_transfer_params": {"placement": "kernel"},
    }
    assert len(answer.token_ids) == 4
    assert answer.sent_ns < answer.first_ns <= answer.done_ns


def test_what_is_not_set_is_not_sent():
    with serve(lambda handler, _: send(handler, ANSWER, kind=STREAM)) as (url, seen):
        complete(url)
    assert not {"cache_salt", "kv_transfer_params"} & seen.requests[0][2].keys()


def test_a_chunked_stream_is_timed_at_its_first_token():
    def slow(handler, _body):
        handler.protocol_version = "HTTP/1.1"
        handler.send_response(200)
        handler.send_header("Transfer-Encoding", "chunked")
        handler.end_headers()
        for event in ANSWER.split(b"\n\n"):
            handler.wfile.write(b"%x\r\n%s\n\n\r\n" % (len(event) + 2, event))
            handler.wfile.flush()
            time.sleep(0.1)
        handler.wfile.write(b"0\r\n\r\n")

    with serve(slow) as (url, _):
        answer = complete(url)
    assert len(answer.token_ids) == 4
    assert answer.done_ns - answer.first_ns > 0.25e9


def test_a_client_leaves_as_soon_as_it_has_its_tokens():
    """And the server's next line finds nobody."""
    lost = threading.Event()

    def drips(handler, _body):
        handler.send_response(200)
        handler.send_header("Content-Length", "1000000")
        handler.end_headers()
        try:
            for event in ANSWER.split(b"\n\n")[:2]:
                handler.wfile.write(event + b"\n\n")
                handler.wfile.flush()
            for _ in range(500):
                handler.wfile.write(b": nothing new\n\n")
                handler.wfile.flush()
                time.sleep(0.01)
        except OSError:
            lost.set()

    with serve(drips) as (url, _):
        with pytest.raises(EngineTimeout, match="left after 1 tokens"):
            complete(url, most_tokens=1)
        assert lost.wait(5)


def chunk_cut(handler, _body):
    handler.protocol_version = "HTTP/1.1"
    handler.send_response(200)
    handler.send_header("Transfer-Encoding", "chunked")
    handler.end_headers()
    handler.wfile.write(b"%x\r\n%s" % (len(ANSWER), ANSWER[:700]))
    handler.wfile.flush()
    handler.connection.shutdown(socket.SHUT_RDWR)


def half(handler, _body):
    handler.send_response(200)
    handler.send_header("Content-Length", str(len(ANSWER)))
    handler.end_headers()
    handler.wfile.write(ANSWER[: len(ANSWER) // 2])
    handler.wfile.flush()


def cut(handler, body):
    half(handler, body)
    handler.connection.shutdown(socket.SHUT_RDWR)


def close_at_once(handler, _body):
    handler.connection.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize("answer", [cut, chunk_cut, close_at_once])
def test_a_lost_connection_is_a_crash(answer):
    with serve(answer) as (url, _), pytest.raises(EngineCrashed, match="was lost while it was answering request r1"):
        complete(url)


def test_nobody_there_is_a_crash_that_names_the_address():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
        with pytest.raises(EngineCrashed, match=f"Nothing answers at {url}"):
            complete(url)


@pytest.mark.parametrize("begin", [lambda handler, body: None, half], ids=["before the head", "in the stream"])
def test_silence_is_a_timeout(begin):
    over = threading.Event()

    def answer(handler, body):
        begin(handler, body)
        over.wait(5)

    with serve(answer) as (url, _):
        with pytest.raises(EngineTimeout, match=r"did not finish answering request r1 within 0\.3 s"):
            complete(url, limit_s=0.3)
        over.set()


def test_a_timeout_tells_what_the_engine_says_of_it():
    with serve(lambda handler, _: time.sleep(1)) as (url, _):
        client = EngineClient(url, why_late=lambda: "its cache is full and nothing runs, so blocks are not freed")
        with pytest.raises(EngineTimeout, match=r"within 0\.2 s: its cache is full .* blocks are not freed\.$") as late:
            client.complete([1], request_id="r", max_tokens=1, limit_s=0.2)
    assert "raise the limit" not in str(late.value)


def test_the_limit_holds_for_an_answer_that_drips():
    over = threading.Event()

    def drip(handler, _body):
        handler.send_response(200)
        handler.send_header("Content-Length", "100000")
        handler.end_headers()
        while not over.wait(0.05):
            try:
                handler.wfile.write(ANSWER.split(b"\n\n")[0] + b"\n\n")
            except OSError:
                return

    with serve(drip) as (url, _):
        with pytest.raises(EngineTimeout):
            complete(url, limit_s=0.4)
        over.set()


def test_an_http_error_keeps_status_and_cause():
    body = b'{"error": {"message": "too long.", "code": 400}}'
    with (
        serve(lambda handler, _: send(handler, body, status=400)) as (url, _),
        pytest.raises(EngineAnswer, match=r"HTTP 400 \(too long\); see its log\.") as caught,
    ):
        complete(url)
    assert (caught.value.status, caught.value.cause) == (400, "too long.")


def test_a_missing_dev_route_names_the_cure():
    with (
        serve(lambda handler, _: send(handler, b'{"detail": "Not Found"}', status=404)) as (url, _),
        pytest.raises(EngineAnswer, match="VLLM_SERVER_DEV_MODE=1"),
    ):
        EngineClient(url).collective_rpc("rig_info")


def replies(*bodies):
    left = list(bodies)
    return lambda handler, _: send(handler, left.pop(0) if len(left) > 1 else left[0])


@pytest.mark.parametrize(
    ("bodies", "limit_s", "result"),
    [
        ([b'{"success": true}'], 5, (True, 1)),
        ([b'{"success": false}', b'{"success": false}', b'{"success": true}'], 5, (True, 3)),
        ([b""], 30, (None, 4)),
    ],
    ids=["at once", "held at first", "up to 0.25"],
)
def test_the_reset_is_asked_for_until_it_says_success(bodies, limit_s, result):
    with serve(replies(*bodies)) as (url, _):
        assert EngineClient(url).reset_prefix_cache(limit_s) == result


def test_a_reset_that_is_always_refused_ends_with_false():
    with serve(replies(b'{"success": false}')) as (url, seen):
        ok, tries = EngineClient(url).reset_prefix_cache(0.6, external=True)
    assert ok is False
    assert tries == len(seen.requests) >= 2
    assert seen.requests[0][0] == "/reset_prefix_cache?reset_external=true"


def test_rpc_sends_positional_arguments_and_its_own_limit():
    with serve(replies(b'{"results": [{"blocks": 3}]}')) as (url, seen):
        assert EngineClient(url).collective_rpc("rig_overwrite_free_blocks", 7, timeout=9) == [{"blocks": 3}]
    assert seen.requests[0][2] == {"method": "rig_overwrite_free_blocks", "args": [7], "kwargs": {}, "timeout": 9}


@pytest.mark.parametrize("url", ["localhost:8000", "http://[::1"])
def test_an_address_that_is_none_is_refused(url):
    with pytest.raises(SettingsError, match="use http://HOST:PORT"):
        EngineClient(url).version()


ASKED = {
    "version": lambda client: client.version(),
    "tokenize": lambda client: client.tokenize("x"),
    "reset": lambda client: client.reset_prefix_cache(0.1),
    "rpc": lambda client: client.collective_rpc("rig_info"),
    "configuration": lambda client: client.server_info(),
}


@pytest.mark.parametrize("body", [b"<html>", b"[]", b"[" * 100_000, b"7"])
@pytest.mark.parametrize("ask", ASKED)
def test_the_wrong_kind_of_server_is_named(ask, body):
    with (
        serve(lambda handler, _: send(handler, body)) as (url, _),
        pytest.raises(EngineAnswer, match="is it a vLLM server"),
    ):
        ASKED[ask](EngineClient(url))


@pytest.mark.parametrize(
    ("ask", "body"),
    [
        ("version", b"{}"), ("version", b'{"version": 32}'), ("tokenize", b"{}"), ("tokenize", b'{"tokens": 5}'),
        ("reset", b"{}"), ("reset", b'{"success": "yes"}'), ("rpc", b'{"results": {"a": 1}}'),
    ],
)  # fmt: skip
def test_a_field_of_another_kind_is_named_too(ask, body):
    with (
        serve(lambda handler, _: send(handler, body)) as (url, _),
        pytest.raises(EngineAnswer, match="is it a vLLM server"),
    ):
        ASKED[ask](EngineClient(url))


def test_a_key_goes_with_every_call():
    with serve(lambda handler, _: send(handler, b'{"version": "0.32.0", "tokens": []}')) as (url, seen):
        keyed = EngineClient(url, api_key="sk-1")
        keyed.version()
        keyed.tokenize("x")
        EngineClient(url).version()
    assert [headers.get("Authorization") for _, headers, _ in seen.requests] == ["Bearer sk-1", "Bearer sk-1", None]
