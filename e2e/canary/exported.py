"""What Prometheus is told, and /healthz. Rules on these names stand in docker/canary/alerts.yml."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import contextmanager
from socketserver import ThreadingMixIn
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, make_wsgi_app

from e2e.base.errors import SettingsError
from e2e.canary.memory import AGES, Memory
from e2e.canary.odds import detectable
from e2e.canary.prober import Outcome, Probe
from e2e.canary.target import Target

PREFIX = "maru_canary"
_TTFT_BUCKETS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120)
_TOKEN_BUCKETS = (0, 16, 64, 128, 256, 512, 1024, 4096, 16384)
#: Without a turn of its loop for so long a canary is not well, in seconds.
STALE_S = 900.0


class Exported:
    """One registry for one canary. An exemplar names the probe, whose recording can be judged."""

    def __init__(self, targets: Iterable[Target], *, token_bytes: int | None = None, store: int | None = None) -> None:
        """``token_bytes``: of a token's KV in the store, ``store``: bytes of that, where known."""
        self.registry, self._token_bytes, self._store = CollectorRegistry(), token_bytes, store
        self.turned_s = time.monotonic()
        self._paid: dict[tuple[str, Counter], int] = {}

        def of(kind: type, name: str, text: str, labels: tuple[str, ...] = (), **more: object):
            return kind(f"{PREFIX}_{name}", text, labels, registry=self.registry, **more)

        self.probes = of(Counter, "probes", "Probes by what became of them.", ("target", "story", "verdict", "reason"))
        self.loads = of(Counter, "loads", "Loads that were compared.", ("target", "how"))
        self.corrupt = of(Counter, "corrupt", "Wrong loads, looked at twice.", ("target",))
        self.ttft = of(
            Histogram, "ttft_seconds", "TTFT by where the KV came from.", ("target", "source"), buckets=_TTFT_BUCKETS
        )  # fmt: skip
        self.missed = of(
            Histogram, "hit_prediction_error_tokens", "Tokens served beside the prediction.", ("target",),
            buckets=_TOKEN_BUCKETS,
        )  # fmt: skip
        self.echoed = of(Counter, "secrets", "Answers that told their secret, or not.", ("target", "source", "told"))
        self.waits = of(Counter, "waits", "Turns in which a target was left alone.", ("target", "reason"))
        self.tokens = of(Counter, "tokens", "Prompt and output tokens that probes took.", ("target",))
        self.stored = of(Counter, "stored_tokens", "Tokens of KV that probes may have stored.", ("target",))
        self.bytes = of(Counter, "stored_bytes", "Bytes of KV that probes may have stored, if known.", ("target",))
        self.store_share = of(Gauge, "store_share", "Part of the store that probes filled in an hour; NaN: not known.")
        self.share = of(Gauge, "token_share", "Our part of the tokens served in ten minutes.", ("target",))
        self.noise = of(Gauge, "noise_logprobs", "Largest difference between its own answers.", ("target",))
        self.success = of(Gauge, "last_success_timestamp_seconds", "Last probe that passed.", ("target",))
        self.sight = of(Gauge, "last_load_timestamp_seconds", "Last load that was compared.", ("target",))
        self.covered = of(Gauge, "covered", "Was this seen within a day: 1, else 0.", ("target", "what"))
        self.least = of(Gauge, "detectable_share", "Share of spoilt loads that the day's probes see with 95 %.")
        self.restarts = of(Counter, "target_restarts", "Starts of a target that were noticed.", ("target",))
        self.turn = of(Gauge, "heartbeat_timestamp_seconds", "Last turn of the canary's loop.")
        for target in targets:  # series that an alert looks at are there before anything happened
            self.corrupt.labels(target.name)
            self.sight.labels(target.name).set(0)
            self.success.labels(target.name).set(0)

    def settled(self, probe: Probe, outcome: Outcome, predicted: int) -> None:
        asked = probe.sites[-1]
        exemplar = {"probe": outcome.id[-100:]}
        self.probes.labels(asked, probe.story, outcome.verdict, outcome.reason).inc(exemplar=exemplar)
        if outcome.saw != "nothing":
            self.loads.labels(asked, outcome.saw).inc(exemplar=exemplar)
        if outcome.verdict == "corrupt":
            self.corrupt.labels(asked).inc(exemplar=exemplar)
        if outcome.served is not None:
            self.missed.labels(asked).observe(abs(outcome.served - predicted), exemplar=exemplar)
        for source in outcome.seen.sources if outcome.seen else ():
            name = source_of(source.local, source.external)
            self.ttft.labels(source.site, name).observe(source.seconds, exemplar=exemplar)
            if probe.story != "crowd":  # each of whose texts has another secret
                self.echoed.labels(source.site, name, str(outcome.told in source.text).lower()).inc()

    def paid(self, target: Target) -> None:
        """What it was asked for so far."""
        totals = [(self.tokens, target.spent), (self.stored, target.stored)]
        if self._token_bytes:
            totals.append((self.bytes, target.stored * self._token_bytes))
        for counter, total in totals:
            counter.labels(target.name).inc(total - self._paid.get((target.name, counter), 0))
            self._paid[target.name, counter] = total

    def standing(self, memory: Memory, targets: Iterable[Target], now_s: float) -> None:
        """What follows from what is known, now in Unix time."""
        number, _ = memory.recent(now_s)
        self.least.set(detectable(number))
        known = self._token_bytes and self._store
        self.store_share.set(memory.put(now_s) * self._token_bytes / self._store if known else math.nan)
        for target in targets:
            mine = {key: seen for key, seen in memory.by.items() if key[1][-1] == target.name}
            self.sight.labels(target.name).set(max((seen.last_s for seen in mine.values()), default=0.0))
            ours, others = target.share.now()
            self.share.labels(target.name).set(ours / (ours + others) if ours + others else 0.0)
            self.noise.labels(target.name).set(memory.noise(target.name) or 0.0)
            for what, last_s in covered(mine).items():
                self.covered.labels(target.name, what).set(int(now_s - last_s < 86400))

    def turned(self) -> None:
        self.turned_s = time.monotonic()
        self.turn.set_to_current_time()

    @property
    def well(self) -> bool:
        return time.monotonic() - self.turned_s < STALE_S


def source_of(local: int | None, external: int | None) -> str:
    if local is None or external is None:
        return "unknown"
    return "external" if external else "local" if local else "cold"


def covered(mine: dict) -> dict[str, float]:
    """What -> Unix time of the last that saw it, of one target that was asked; 0.0: never."""
    found = {"external": 0.0, "external_exact": 0.0, "local": 0.0, **{f"after_{age:.0f}s": 0.0 for age in AGES}}
    for (story, _), seen in mine.items():
        if story == "local":
            found["local"] = max(found["local"], seen.tried_s)
            continue
        found["external"] = max(found["external"], seen.last_s)
        if seen.exact:
            found["external_exact"] = max(found["external_exact"], seen.last_s)
        for age in seen.ages & {*AGES}:
            found[f"after_{age:.0f}s"] = max(found[f"after_{age:.0f}s"], seen.last_s)
    return found


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True


class _Quiet(WSGIRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def served(exported: Exported, host: str, port: int):
    """/metrics and /healthz while it lasts; yields the port. SettingsError for an address that can't be had."""
    metrics = make_wsgi_app(exported.registry)

    def app(environ: dict, start: Callable) -> Iterable[bytes]:
        if environ.get("PATH_INFO") == "/metrics":
            return metrics(environ, start)
        known = environ.get("PATH_INFO") == "/healthz"
        status, said = ("200 OK", b"ok\n") if exported.well else ("503 Service Unavailable", b"no turn for too long\n")
        status, said = (status, said) if known else ("404 Not Found", b"/metrics and /healthz\n")
        start(status, [("Content-Type", "text/plain; charset=utf-8")])
        return [said]

    try:
        server = make_server(host, port, app, _Server, _Quiet)
    except OSError as error:
        raise SettingsError(
            f"--listen: {host}:{port} can't be had ({error.strerror}); choose another address."
        ) from error
    thread = threading.Thread(target=server.serve_forever, name="metrics", daemon=True)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)
