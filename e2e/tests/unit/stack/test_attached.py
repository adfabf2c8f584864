from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from e2e.base.errors import EngineCrashed, EngineTimeout, UsageError
from e2e.stack.attach import AttachLauncher
from e2e.stack.launcher import Engine, Launcher
from e2e.stack.probe import is_loopback
from e2e.stack.process import HeldPort
from e2e.stack.spec import EngineSpec

SPEC = EngineSpec(name="live.1", engine_key="live", role="baseline", model="any", max_model_len=2048)


@pytest.fixture
def server():
    """A server whose answers to /health and /v1/models can be changed."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            status, body = self.server.answers.get(self.path, (404, {}))
            self.send_response(status)
            self.end_headers()
            self.wfile.write(body if isinstance(body, bytes) else json.dumps(body).encode())

        def log_message(self, *words):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.answers = {
        "/health": (200, {}),
        "/v1/models": (200, {"data": [{"id": "org/name", "max_model_len": 4096}]}),
    }
    server.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join(5)


@pytest.mark.parametrize("tail", ["", "/", "/v1", "/v1/"])
def test_it_is_looked_at_and_left_alone(server, recorded, tail):
    launcher = AttachLauncher(url=server.url + tail)
    assert isinstance(launcher, Launcher)
    with launcher.start(SPEC, record=recorded) as engine:
        assert isinstance(engine, Engine)
        engine.wait_ready(5)
        engine.check()
        assert (engine.url, engine.model) == (server.url, "org/name")
    assert engine.alive()
    assert recorded.kinds() == ["engine.start", "engine.ready", "engine.stop"]


def test_no_proxy_stands_before_an_engine_of_this_machine(server, recorded, monkeypatch):
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.delenv("no_proxy", raising=False)
    AttachLauncher(url=server.url).start(SPEC, record=recorded).wait_ready(5)
    assert is_loopback("http://localhost:1")
    assert is_loopback("http://[::1]:1")
    assert not is_loopback("http://engine.example:1")


def test_nobody_there(recorded):
    held = HeldPort()
    try:
        with pytest.raises(UsageError, match=r"nobody answers at http://127.0.0.1:\d+; start the engine") as caught:
            AttachLauncher(url=f"http://127.0.0.1:{held.port}").start(SPEC, record=recorded)
    finally:
        held.release()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("url", ["127.0.0.1:8000", "ftp://host", "http://", "nonsense"])
def test_no_address(url):
    with pytest.raises(UsageError, match="is no address"):
        AttachLauncher(url=url)


@pytest.mark.parametrize("answer", [(404, {}), (200, b"<html>"), (200, []), (200, {"data": []})])
def test_another_kind_of_server(server, recorded, answer):
    server.answers["/v1/models"] = answer
    with pytest.raises(UsageError, match="is no OpenAI server"):
        AttachLauncher(url=server.url).start(SPEC, record=recorded)


def test_one_that_takes_too_few_tokens(server, recorded):
    server.answers["/v1/models"] = (200, {"data": [{"id": "m", "max_model_len": 1024}]})
    with pytest.raises(UsageError, match="takes 1024 tokens and 2048 are needed"):
        AttachLauncher(url=server.url).start(SPEC, record=recorded)


def test_one_that_is_ill(server, recorded):
    server.answers["/health"] = (503, {})
    engine = AttachLauncher(url=server.url).start(SPEC, record=recorded)
    with pytest.raises(EngineTimeout, match="not healthy within 1 s"):
        engine.wait_ready(1)
    assert recorded.one("engine.failed")["stage"] == "start"


def test_one_that_goes_away(server, recorded):
    engine = AttachLauncher(url=server.url).start(SPEC, record=recorded)
    engine.wait_ready(5)
    server.answers["/health"] = (503, {})
    for _ in range(2):
        with pytest.raises(EngineCrashed, match="no longer answers"):
            engine.check(settle_s=0.5)
    assert recorded.one("engine.failed")["stage"] == "run"
