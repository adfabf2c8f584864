"""A hub id is looked up before any engine starts; the hub is played by a server of our own."""

import json
import threading
from http.server import BaseHTTPRequestHandler

import huggingface_hub
import pytest
from huggingface_hub import constants

from e2e.base.errors import SettingsError
from e2e.stack.hub import hub_config
from e2e.stack.model_facts import longest
from e2e.tests.unit.quiet_http import QuietServer


@pytest.fixture
def hub(monkeypatch):
    """``hub.reply``: (status, X-Error-Code, body). Nothing is cached and nothing forbids to ask."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            status, code, body = self.server.reply
            self.server.paths.append(self.path)
            self.send_response(status)
            if code:
                self.send_header("X-Error-Code", code)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *words):
            pass

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(huggingface_hub, "try_to_load_from_cache", lambda *args: None)
    with QuietServer(("127.0.0.1", 0), Handler) as server:
        server.paths, server.reply = [], (404, "", b"")
        server.url = f"http://127.0.0.1:{server.server_port}"
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield server
        server.shutdown()


def test_a_model_that_is_there(hub):
    hub.reply = (200, "", b'{"max_position_embeddings": 4096}')
    assert longest(hub_config("org/name", endpoint=hub.url)) == 4096
    assert hub.paths == ["/org/name/resolve/main/config.json"]


@pytest.mark.parametrize(
    ("reply", "says"),
    [
        ((401, "RepoNotFound", b"Invalid username or password."), "is not at the hub, or HF_TOKEN may not see it"),
        ((404, "RepoNotFound", b""), "is not at the hub"),
        ((404, "", b""), "is not at the hub"),
        ((403, "GatedRepo", b""), "is gated; ask for access"),
        ((404, "EntryNotFound", b""), "has no config.json"),
        ((503, "", b""), r"can't be looked up \(HTTP 503\); try again"),
        ((200, "", b"<html>"), "is no JSON"),
        ((200, "", b"[" * 100_000), "is no JSON"),
    ],
)
def test_one_that_can_not_be_had_is_one_sentence(hub, reply, says):
    hub.reply = reply
    with pytest.raises(
        SettingsError, match=f"model 'org/name'.*{says}|the config.json of model 'org/name' {says}"
    ) as e:
        hub_config("org/name", endpoint=hub.url)
    assert "give a hub id that exists, or a model folder." in str(e.value)


def test_nobody_there_to_ask(hub):
    with pytest.raises(SettingsError, match=r"not in the cache and can't be looked up \(ConnectionError at 127"):
        hub_config("org/name", endpoint="http://127.0.0.1:1")


def test_offline_nobody_is_asked(hub, monkeypatch):
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(SettingsError, match="HF_HUB_OFFLINE forbids to look it up"):
        hub_config("org/name", endpoint=hub.url)
    assert hub.paths == []


def test_what_is_in_the_cache_is_not_asked_for(hub, monkeypatch, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"text_config": {"max_position_embeddings": 77}}))
    monkeypatch.setattr(huggingface_hub, "try_to_load_from_cache", lambda *args: str(tmp_path / "config.json"))
    assert longest(hub_config("org/name", endpoint=hub.url)) == 77
    assert hub.paths == []


@pytest.mark.parametrize("model", ["a b/c", "org/na..me", "-org/name", "org/" + "x" * 200])
def test_no_hub_id(model):
    with pytest.raises(SettingsError, match="is no hub id"):
        hub_config(model)


@pytest.mark.parametrize("config", [{}, {"max_position_embeddings": "many"}, {"max_position_embeddings": 0}])
def test_a_model_that_does_not_say_its_limit(config):
    assert longest(config) is None
