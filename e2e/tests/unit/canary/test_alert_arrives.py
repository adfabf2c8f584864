"""From a wrong load to a webhook, through a real Prometheus and a real Alertmanager with the repository's rules."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from queue import Empty, Queue
from types import SimpleNamespace

import pytest

from e2e.canary.exported import Exported, served

FOLDER = Path(__file__).parents[4] / "docker" / "canary"
#: Debian's package of Alertmanager gives it this name.
NEEDED = ("prometheus", "prometheus-alertmanager")
pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(240),
    pytest.mark.skipif(
        any(shutil.which(name) is None for name in NEEDED), reason=f"apt install {' '.join(NEEDED)} for this one"
    ),
]
LIMIT_S = 120.0


def free_port() -> int:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        return held.getsockname()[1]


@contextmanager
def running(*words: str, log: Path) -> Iterator[None]:
    with log.open("wb") as file:
        process = subprocess.Popen(words, stdout=file, stderr=subprocess.STDOUT)
    try:
        yield
    finally:
        process.kill()
        process.wait(10)


@contextmanager
def webhook() -> Iterator[tuple[str, Queue]]:
    """Its address, and the names of alerts with their status as they arrive."""
    arrived: Queue = Queue()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            for alert in body["alerts"]:
                arrived.put((alert["labels"]["alertname"], alert["labels"].get("target"), alert["status"]))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *words: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}", arrived
        server.shutdown()


def config(name: str, folder: Path, **values: object) -> Path:
    """The repository's own, with other addresses and a faster pulse."""
    text = (FOLDER / name).read_text()
    for old, new in values.items():
        assert old in text
        text = text.replace(old, str(new))
    path = folder / name
    path.write_text(text)
    return path


def test_the_alert_arrives(tmp_path):
    exported = Exported([SimpleNamespace(name="a"), SimpleNamespace(name="b")])
    exported.turned()
    ports = {"prometheus": free_port(), "alertmanager": free_port()}
    shutil.copy(FOLDER / "alerts.yml", tmp_path)
    with ExitStack() as stack:
        port = stack.enter_context(served(exported, "127.0.0.1", 0))
        address, arrived = stack.enter_context(webhook())
        alerting = config("alertmanager.yml", tmp_path, **{"http://127.0.0.1:9095": address})
        places = {"canary:9464": f"127.0.0.1:{port}", "alertmanager:9093": f"127.0.0.1:{ports['alertmanager']}"}
        watching = config("prometheus.yml", tmp_path, **places, **{"15s": "1s"})
        stack.enter_context(
            running(
                "prometheus-alertmanager", f"--config.file={alerting}", f"--storage.path={tmp_path / 'am'}",
                f"--web.listen-address=127.0.0.1:{ports['alertmanager']}", "--cluster.listen-address=",
                log=tmp_path / "alertmanager.log",
            )
        )  # fmt: skip
        stack.enter_context(
            running(
                "prometheus", f"--config.file={watching}", f"--storage.tsdb.path={tmp_path / 'tsdb'}",
                f"--web.listen-address=127.0.0.1:{ports['prometheus']}", log=tmp_path / "prometheus.log",
            )
        )  # fmt: skip
        exported.probes.labels("a", "cross", "error", "http_500").inc()
        with pytest.raises(Empty):
            arrived.get(timeout=10)
        exported.corrupt.labels("a").inc(exemplar={"probe": "segment/p"})
        try:
            assert arrived.get(timeout=LIMIT_S) == ("MaruCanaryCorrupt", "a", "firing")
        except Empty:
            pytest.fail(
                "\n".join((tmp_path / name).read_text()[-2000:] for name in ("prometheus.log", "alertmanager.log"))
            )
