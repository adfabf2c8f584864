"""A server on a free port that answers as it is told, to see what the client makes of it. It is no engine."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler

from e2e.tests.unit.quiet_http import QuietServer

STREAM = "text/event-stream"


@dataclass
class Seen:
    """Requests in the order of their coming: (path with query, headers, body)."""

    requests: list[tuple[str, dict, object]] = field(default_factory=list)


@contextmanager
def serve(answer: Callable[[BaseHTTPRequestHandler, object], None]) -> Iterator[tuple[str, Seen]]:
    """``answer(handler, body)`` writes the reply. Gives the URL and what was seen."""
    seen = Seen()

    class Handler(BaseHTTPRequestHandler):
        def reply(self) -> None:
            raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            body = json.loads(raw) if raw else None
            seen.requests.append((self.path, dict(self.headers), body))
            answer(self, body)

        do_GET = do_POST = reply

        def log_message(self, *args: object) -> None:
            pass

    server = QuietServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", seen
    finally:
        server.shutdown()
        server.server_close()
        thread.join(timeout=5)


def send(
    handler: BaseHTTPRequestHandler, body: bytes = b"", *, status: int = 200, kind: str = "application/json"
) -> None:
    handler.send_response(status)
    handler.send_header("Content-Type", kind)
    handler.send_header("Content-Length", str(len(body)))
    handler.end_headers()
    handler.wfile.write(body)
