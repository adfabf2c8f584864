"""A real Prometheus and a real Alertmanager with the repository's rules, and a webhook where alerts arrive."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from queue import Queue

from e2e.tests.unit.quiet_http import QuietServer

FOLDER = Path(__file__).parents[4] / "docker" / "canary"
#: Debian's package of Alertmanager gives it this name.
NEEDED = ("prometheus", "prometheus-alertmanager")
MISSING = [name for name in NEEDED if shutil.which(name) is None]
LOGS = ("prometheus.log", "alertmanager.log")
#: As prometheus.yml has it.
PULSE_S = 15


@contextmanager
def watched(port: int, folder: Path, *, pulse_s: int = PULSE_S) -> Iterator[Queue]:
    """Whatever serves /metrics at ``port`` is scraped; yields alerts as they arrive, (name, target, status)."""
    ports = {"prometheus": free_port(), "alertmanager": free_port()}
    shutil.copy(FOLDER / "alerts.yml", folder)
    with _webhook() as (address, arrived):
        alerting = _config("alertmanager.yml", folder, **{"http://127.0.0.1:9095": address})
        places = {"canary:9464": f"127.0.0.1:{port}", "alertmanager:9093": f"127.0.0.1:{ports['alertmanager']}"}
        watching = _config("prometheus.yml", folder, **places, **{f"{PULSE_S}s": f"{pulse_s}s"})
        alertmanager = (
            "prometheus-alertmanager", f"--config.file={alerting}", f"--storage.path={folder / 'am'}",
            f"--web.listen-address=127.0.0.1:{ports['alertmanager']}", "--cluster.listen-address=",
        )  # fmt: skip
        prometheus = (
            "prometheus", f"--config.file={watching}", f"--storage.tsdb.path={folder / 'tsdb'}",
            f"--web.listen-address=127.0.0.1:{ports['prometheus']}",
        )  # fmt: skip
        with _running(*alertmanager, log=folder / LOGS[1]), _running(*prometheus, log=folder / LOGS[0]):
            yield arrived


def free_port() -> int:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        return held.getsockname()[1]


@contextmanager
def _running(*words: str, log: Path) -> Iterator[None]:
    with log.open("wb") as file:
        process = subprocess.Popen(words, stdout=file, stderr=subprocess.STDOUT)
    try:
        yield
    finally:
        process.kill()
        process.wait(10)


@contextmanager
def _webhook() -> Iterator[tuple[str, Queue]]:
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

    with QuietServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}", arrived
        server.shutdown()


def _config(name: str, folder: Path, **values: object) -> Path:
    """The repository's own, with other addresses and perhaps a faster pulse."""
    text = (FOLDER / name).read_text()
    for old, new in values.items():
        assert old in text
        text = text.replace(old, str(new))
    path = folder / name
    path.write_text(text)
    return path
