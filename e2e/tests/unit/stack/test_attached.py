"""Engines of somebody else, played by real servers; answers that must be refused stand in the table of wrong inputs."""

from __future__ import annotations

import json
import threading
import time
from http.server import BaseHTTPRequestHandler

import pytest

from e2e.base.errors import EngineCrashed, EngineTimeout, UsageError
from e2e.stack import probe
from e2e.stack.attach import AttachLauncher, look
from e2e.stack.launcher import Engine, Launcher
from e2e.stack.process import HeldPort
from e2e.stack.spec import EngineSpec
from e2e.tests.unit.quiet_http import QuietServer

SPEC = EngineSpec(name="live.1", engine_key="live", role="baseline", model="any", max_model_len=2048)


@pytest.fixture
def server():
    """A vLLM as far as it is asked; its ``answers`` and its ``key`` can be changed, ``delay_s`` comes before each."""

    class Handler(BaseHTTPRequestHandler):
        def reply(self):
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            self.server.asked.append((self.command, self.path))
            time.sleep(self.server.delay_s)
            status, body = self.server.answers.get(self.path, (404, {}))
            if self.server.key and self.headers.get("Authorization") != f"Bearer {self.server.key}":
                status, body = 401, {"error": "Unauthorized"}
            if self.command == "GET" and self.path in ("/collective_rpc", "/reset_prefix_cache"):
                status, body = 405, {"detail": "Method Not Allowed"}
            self.send_response(status)
            self.end_headers()
            self.wfile.write(json.dumps(body).encode())

        do_GET = do_POST = reply

        def log_message(self, *words):
            pass

    server = QuietServer(("127.0.0.1", 0), Handler)
    server.key, server.delay_s, server.asked = None, 0, []
    server.answers = {
        "/health": (200, {}),
        "/version": (200, {"version": "0.32.0"}),
        "/v1/models": (200, {"data": [{"id": "org/name", "max_model_len": 4096}]}),
        "/collective_rpc": (200, {"results": [{"layout": "HND", "block_size": 32}]}),
        "/reset_prefix_cache": (200, {}),
    }
    server.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join(5)


@pytest.mark.parametrize("tail", ["", "/", "/v1", "/v1/"])
def test_it_is_looked_at_and_left_alone(server, recorded, tail):
    found = look(server.url + tail)
    assert (found.model, found.max_tokens, found.info) == ("org/name", 4096, {"layout": "HND", "block_size": 32})
    assert ("POST", "/reset_prefix_cache") not in server.asked, "a look changes nothing"
    launcher = AttachLauncher(found)
    assert isinstance(launcher, Launcher)
    with launcher.start(SPEC, record=recorded) as engine:
        assert isinstance(engine, Engine)
        engine.wait_ready(5)
        engine.check()
        assert (engine.url, engine.model) == (server.url, "org/name")
    assert engine.alive()
    assert recorded.kinds() == ["engine.start", "engine.ready", "engine.stop"]


def test_a_key_goes_to_every_route_and_into_no_event(server, recorded):
    server.key = "sk-very-secret"
    with pytest.raises(UsageError, match=r"needs a key \(HTTP 401\); give --api-key"):
        look(server.url)
    found = look(server.url, api_key=server.key)
    with AttachLauncher(found).start(SPEC, record=recorded) as engine:
        engine.wait_ready(5)
        engine.check()
    assert server.key not in repr(list(recorded))


def test_one_that_hangs_is_given_up_at_the_limit(server):
    server.delay_s = 60
    began_s = time.monotonic()
    with pytest.raises(UsageError, match=r"did not answer /version within 0.3 s; see in its log"):
        look(server.url, limit_s=0.3)
    assert time.monotonic() - began_s < 40


def test_an_answer_that_does_not_end_is_given_up_too(monkeypatch):
    class Endless(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.end_headers()
            for _ in range(1000):
                self.wfile.write(b" " * 1000)
                self.wfile.flush()
                time.sleep(0.05)

        def log_message(self, *words):
            pass

    began_s = time.monotonic()
    with QuietServer(("127.0.0.1", 0), Endless) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
        with pytest.raises(UsageError, match=r"did not answer /version within 0\.4 s"):
            look(url, limit_s=0.4)
        assert time.monotonic() - began_s < 40, "not when all of it has come, which takes 50 s"
        monkeypatch.setattr(probe, "MOST_BYTES", 3000)
        with pytest.raises(UsageError, match="did not answer /version"):
            look(url, limit_s=4)
        server.shutdown()


def test_no_proxy_stands_before_an_engine_of_this_machine(server, recorded, monkeypatch):
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.delenv("no_proxy", raising=False)
    AttachLauncher(look(server.url)).start(SPEC, record=recorded).wait_ready(5)
    assert probe.is_loopback("http://localhost:1")
    assert probe.is_loopback("http://[::1]:1")
    assert not probe.is_loopback("http://engine.example:1")


def test_nobody_there():
    held = HeldPort()
    try:
        with pytest.raises(UsageError, match=r"nobody answers at http://127.0.0.1:\d+; start the engine") as caught:
            look(f"http://127.0.0.1:{held.port}")
    finally:
        held.release()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("url", ["127.0.0.1:8000", "ftp://host", "http://", "nonsense"])
def test_no_address(url):
    with pytest.raises(UsageError, match="is no address"):
        look(url)


def test_one_that_is_ill(server, recorded):
    server.answers["/health"] = (503, {})
    engine = AttachLauncher(look(server.url)).start(SPEC, record=recorded)
    with pytest.raises(EngineTimeout, match="not healthy within 1 s"):
        engine.wait_ready(1)
    assert recorded.one("engine.failed")["stage"] == "start"


def test_one_that_goes_away(server, recorded):
    engine = AttachLauncher(look(server.url)).start(SPEC, record=recorded)
    engine.wait_ready(5)
    server.answers["/health"] = (503, {})
    for _ in range(2):
        with pytest.raises(EngineCrashed, match="no longer answers"):
            engine.check(settle_s=0.5)
    assert recorded.one("engine.failed")["stage"] == "run"
