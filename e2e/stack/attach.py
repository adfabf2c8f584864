"""An engine that somebody else runs: we ask what it is before anything else, look at it and leave it alone."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import requests

from e2e.base.errors import EngineCrashed, EngineTimeout, UsageError
from e2e.base.event import Record, engine_failed
from e2e.stack import probe
from e2e.stack.probe import Answer
from e2e.stack.spec import EXTENSION, EngineSpec
from e2e.waits import Outcome, wait

#: For each question of the first look. Seconds.
LOOK_LIMIT_S = 10.0
DEV_MODE, WORKER = "VLLM_SERVER_DEV_MODE=1", f"--worker-extension-cls {EXTENSION}"


@dataclass(frozen=True)
class Attached:
    """What an engine answered. ``max_tokens``: prompt and answer together, None when unsaid. ``info``: what the rig's
    extension tells in its first worker, as in event ``engine.config``."""

    url: str
    api_key: str | None
    model: str
    max_tokens: int | None
    info: Mapping[str, object] = field(default_factory=dict)


def look(url: str, *, api_key: str | None = None, limit_s: float = LOOK_LIMIT_S) -> Attached:
    """Is a vLLM there that the rig can use? ``url``: base address, with or without ``/v1``. UsageError when nobody or
    something else answers, when a key is needed, and when dev routes or the worker extension are missing: then no cell
    could pass. Nothing in the engine changes."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise UsageError(f"--attach {url!r} is no address; give one like http://127.0.0.1:8000.")
    look = _Look(url.rstrip("/").removesuffix("/v1"), api_key, limit_s)
    look.must_be_vllm()
    model, max_tokens = look.served()
    return Attached(look.url, api_key, model, max_tokens, look.worker())


@dataclass(frozen=True)
class _Look:
    url: str
    api_key: str | None
    limit_s: float

    def _ask(self, path: str, **options: object) -> Answer:
        try:
            answer = probe.ask(self.url + path, api_key=self.api_key, limit_s=self.limit_s, **options)
        except requests.Timeout as error:
            raise UsageError(
                f"{self.url} did not answer {path} within {self.limit_s:g} s; see in its log whether it is stuck, or "
                "correct --attach."
            ) from error
        except requests.ConnectionError as error:
            if isinstance(error, requests.exceptions.SSLError):
                raise UsageError(f"{self.url} does not speak TLS as it should; give http:// or mend it.") from error
            raise UsageError(f"nobody answers at {self.url}; start the engine or correct --attach.") from error
        except (requests.RequestException, OSError, ValueError) as error:
            raise self._no_vllm(path, "what is no HTTP") from error
        if answer.status in (401, 403):
            cure = "it refuses the one that was given" if self.api_key else "give --api-key, or MARU_E2E_API_KEY"
            raise UsageError(f"the engine at {self.url} needs a key (HTTP {answer.status}); {cure}.")
        return answer

    def _no_vllm(self, path: str, found: str) -> UsageError:
        return UsageError(
            f"{self.url} is no vLLM: {path} answered with {found}; give the address of vLLM's own server to --attach."
        )

    def must_be_vllm(self) -> None:
        answer = self._ask("/version")
        if answer.status != 200:
            raise self._no_vllm("/version", f"HTTP {answer.status}")
        if not isinstance(answer.fields().get("version"), str):
            raise self._no_vllm("/version", "something else")

    def served(self) -> tuple[str, int | None]:
        """Name and limit in tokens of the first model."""
        answer = self._ask("/v1/models")
        try:
            first = answer.fields()["data"][0]
            limit = first.get("max_model_len")
            return str(first["id"]), limit if isinstance(limit, int) else None
        except (LookupError, TypeError, AttributeError) as error:
            raise self._no_vllm("/v1/models", f"HTTP {answer.status} and no model") from error

    def worker(self) -> Mapping[str, object]:
        """What the rig's extension tells. A route that only takes POST answers 405 to a GET, a missing one 404."""
        body = {"method": "rig_info", "args": [], "kwargs": {}, "timeout": self.limit_s}
        if self._ask("/reset_prefix_cache").status == 404 or self._ask("/collective_rpc").status == 404:
            raise UsageError(
                f"the engine at {self.url} was started without its dev routes, so no cell could pass; start it with "
                f"{DEV_MODE} in its environment and {WORKER}."
            )
        answer = self._ask("/collective_rpc", verb="POST", content=body)
        results = answer.fields().get("results")
        if answer.status == 200 and isinstance(results, list) and results and isinstance(results[0], dict):
            return results[0]
        raise UsageError(
            f"the engine at {self.url} has no worker extension of the rig (HTTP {answer.status}), so no cell could "
            f"pass; start it with {WORKER}, and with this package where its Python finds it."
        )


class AttachLauncher:
    """``attempt``: of this run."""

    def __init__(self, found: Attached, *, attempt: int = 1) -> None:
        self.found, self.attempt = found, attempt

    def start(self, spec: EngineSpec, *, log_path: Path | None = None, record: Record) -> AttachedEngine:
        record(
            "engine.start", engine=spec.name, engine_key=spec.engine_key, role=spec.role, attempt=self.attempt, argv=[],
            launcher="attach", log=None, url=self.found.url,
        )  # fmt: skip
        return AttachedEngine(self.found, spec, record=record)


class AttachedEngine:
    """See ``launcher.Engine``; ``stop`` ends nothing, and there is no log to read a cause from."""

    log_path = None

    def __init__(self, found: Attached, spec: EngineSpec, *, record: Record) -> None:
        self.name, self.url, self.model, self._api_key = spec.name, found.url, found.model, found.api_key
        self._record = record
        self._failed = self._stopped = False
        self._began_ns = time.monotonic_ns()

    def wait_ready(self, limit_s: float) -> None:
        if wait(self.alive, limit_s=limit_s) is not Outcome.READY:
            text = f"the engine at {self.url} was not healthy within {limit_s:.0f} s; look at its log"
            raise self._fail(EngineTimeout(text), stage="start")
        self._record("engine.ready", engine=self.name, start_s=(time.monotonic_ns() - self._began_ns) / 1e9)

    def alive(self) -> bool:
        return probe.is_healthy(self.url, api_key=self._api_key)

    def check(self, *, settle_s: float = 0.0) -> None:
        if settle_s:
            wait(lambda: not self.alive(), limit_s=settle_s)
        if not self.alive():
            text = f"the engine at {self.url} no longer answers /health; look at its log"
            raise self._fail(EngineCrashed(text), stage="run")

    def _fail(self, error: EngineTimeout | EngineCrashed, *, stage: str) -> EngineTimeout | EngineCrashed:
        if not self._failed:
            self._failed = True
            engine_failed(self._record, self.name, stage, error)
        return error

    def cause(self) -> str:
        return ""

    def stall(self) -> str:
        return ""

    def log_tail(self) -> str:
        return ""

    def kill(self) -> None:
        """Not ours to kill: a program that kills starts its engines itself, and none does where we attach."""

    def stop(self, limit_s: float = 0.0) -> None:
        if not self._stopped:
            self._stopped = True
            self._record("engine.stop", engine=self.name, graceful=True, stop_s=0.0)

    def __enter__(self) -> AttachedEngine:
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()
