"""One small server for all rows that attach: the first word of the path says what it plays."""

from __future__ import annotations

import json
import threading
import time

from e2e.tests.unit.quiet_http import QuietHandler, QuietServer

MODELS = {"data": [{"id": "org/name", "max_model_len": 4096}]}
INFO = {"results": [{"layout": "NHD", "block_size": 16}]}
#: An engine that lacks nothing, by path; what is not here is 404. None: the route takes POST only.
ENGINE = {"/version": {"version": "0.32.0"}, "/v1/models": MODELS, "/reset_prefix_cache": None, "/collective_rpc": INFO}
NO_DEV = {path: ENGINE[path] for path in ("/version", "/v1/models")}
ROLES = {
    "braces": {path: {} for path in ENGINE},
    "list": {path: [] for path in ENGINE},
    "html": dict.fromkeys(ENGINE, b"<html><h1>It works!</h1></html>"),
    "deep": dict.fromkeys(ENGINE, b"[" * 100_000),
    "binary": dict.fromkeys(ENGINE, bytes(range(256))),
    "nothing": {},
    "failing": dict.fromkeys(ENGINE, 500),
    "no-model": {**ENGINE, "/v1/models": {"data": []}},
    "odd-models": {**ENGINE, "/v1/models": {"data": {"id": 1}}},
    "key": {**ENGINE, "/v1/models": 401},
    "forbidden": {**ENGINE, "/v1/models": 403},
    "key-for-all": dict.fromkeys(ENGINE, 401),
    "no-dev": NO_DEV,
    "no-reset": {path: answer for path, answer in ENGINE.items() if path != "/reset_prefix_cache"},
    "no-extension": {**ENGINE, "/collective_rpc": 500},
    "no-results": {**ENGINE, "/collective_rpc": {"results": []}},
    "odd-layout": {**ENGINE, "/collective_rpc": {"results": [{"layout": "\x1b[2JHND"}]}},
    "odd-table": {**ENGINE, "/collective_rpc": {"results": [{"layout": {"NHD": 1}}]}},
    "odd-block": {**ENGINE, "/collective_rpc": {"results": [{"layout": "NHD", "block_size": "many"}]}},
    "odd-tokens": {**ENGINE, "/tokenize": {"tokens": "many"}},
    "whole": ENGINE,
    "lost": {**ENGINE, "/v1/models": "lost"},
    "endless": {**ENGINE, "/version": "endless"},
    "mute": {**ENGINE, "/version": "mute"},
}


class Handler(QuietHandler):
    def reply(self) -> None:
        _, role, rest = self.path.split("/", 2)
        missing = object()
        answer = ROLES[role].get(f"/{rest}", missing)
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if answer is missing:
            return self.send(404, b'{"detail":"Not Found"}')
        if self.command == "GET" and rest in ("reset_prefix_cache", "collective_rpc"):
            answer = 405
        if answer == "mute":
            return time.sleep(5)
        if answer == "lost":
            return self.connection.close()
        if answer == "endless":
            self.send_response(200)
            self.end_headers()
            for _ in range(50):
                self.wfile.write(b" ")
                self.wfile.flush()
                time.sleep(0.1)
            return None
        if isinstance(answer, int):
            return self.send(answer, b"\x1b[2J<script>alert(1)</script>")
        return self.send(200, answer if isinstance(answer, bytes) else json.dumps(answer).encode())

    do_GET = do_POST = reply


SERVER = QuietServer(("127.0.0.1", 0), Handler)
_started = threading.Event()


def address(role: str) -> str:
    assert role in ROLES
    return f"http://127.0.0.1:{SERVER.server_port}/{role}"


def serve(_: object = None) -> None:
    """Runs until the tests end."""
    if not _started.is_set():
        _started.set()
        threading.Thread(target=SERVER.serve_forever, daemon=True).start()
