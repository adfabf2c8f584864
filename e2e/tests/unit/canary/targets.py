"""A server that is no engine: the wrong input of a canary. The first word of the path says what it plays."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from zlib import crc32

from e2e.tests.unit.quiet_http import QuietHandler, QuietServer

COUNTERS = """
vllm:prompt_tokens_total{engine="0"} 1000
vllm:generation_tokens_total{engine="0"} 100
vllm:num_requests_running{engine="0"} 0
vllm:num_requests_waiting{engine="0"} %d
vllm:time_to_first_token_seconds_sum{engine="0"} 1
vllm:time_to_first_token_seconds_count{engine="0"} 1
"""
MODELS, VERSION = {"data": [{"id": "m"}]}, {"version": "0.32.0"}
#: What it answers to a completion; a number is a status.
ROLES = {
    "401": 401, "403": 403, "404": 404, "429": 429, "500": 500, "503": 503,
    "html": b"<html>It works!</html>",
    "braces": {},
    "cut": b'data: {"choices":[{"token_ids":[1],"text":"x","logprobs":{"token_logprobs":[-1]}}]}\n\n',
    "error": b'data: {"error":{"message":"no room"}}\n\n',
    "binary": bytes(range(256)),
    "slow": "slow",
    "lost": "lost",
}  # fmt: skip
#: Those that are wrong before anything is sent.
LOOKS = {
    "no-metrics": 404, "metrics-key": 401, "metrics-html": b"<html></html>", "metrics-other": b"up 1\n",
    "metrics-nan": (COUNTERS % 0).replace(" 1000", " NaN").encode(), "metrics-slow": "slow", "metrics-lost": "lost",
}  # fmt: skip
MORE = {"busy": (COUNTERS % 3).encode()}
#: Looks at one that dies, until it does.
LIVES = 1


class Handler(QuietHandler):
    def reply(self) -> None:
        _, role, path = self.path.split("/", 2)
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if path == "metrics":
            answer = {**LOOKS, **MORE}.get(role, (COUNTERS % 0).encode())
        elif path == "tokenize":
            words = json.loads(body)["prompt"].split()
            answer = {"tokens": [crc32(word.encode()) % 50_000 for word in words]}
        else:
            answer = {"v1/models": MODELS, "version": VERSION}.get(path, ROLES.get(role, 500))
        if role == "dies" and path == "metrics":
            self.server.looks += 1
            answer = answer if self.server.looks <= LIVES else "lost"
        if answer == "slow":
            time.sleep(1.5)
            answer = 500
        if answer == "lost":
            self.connection.close()
            return
        if isinstance(answer, int):
            said = f"no\x1b[2J <b>way</b>\r\nfor {self.headers.get('Authorization')}"
            self.send(answer, json.dumps({"error": {"message": said}}).encode())
            return
        self.send(200, answer if isinstance(answer, bytes) else json.dumps(answer).encode())

    do_GET = do_POST = reply


class Server(QuietServer):
    looks = 0


@contextmanager
def serving() -> Iterator[str]:
    """Its address, without the role."""
    with Server(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
