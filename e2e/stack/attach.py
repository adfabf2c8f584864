"""An engine that somebody else runs: we look, ask and leave it alone."""

from __future__ import annotations

import time
from pathlib import Path
from urllib.parse import urlsplit

import requests

from e2e.base.errors import EngineCrashed, EngineTimeout, UsageError
from e2e.base.event import Record
from e2e.stack import probe
from e2e.stack.spec import EngineSpec
from e2e.stack.waits import Outcome, wait


class AttachLauncher:
    """``url``: base address, with or without ``/v1``. ``attempt``: of this run."""

    def __init__(self, *, url: str, attempt: int = 1) -> None:
        """Raises UsageError for what is no http(s) address."""
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise UsageError(f"--attach {url!r} is no address; give one like http://127.0.0.1:8000.")
        self.url = url.rstrip("/").removesuffix("/v1")
        self.attempt = attempt

    def start(self, spec: EngineSpec, *, log_path: Path | None = None, record: Record) -> AttachedEngine:
        """Raises UsageError when nobody answers there, or one that is no OpenAI server, or whose limits are below
        the spec's."""
        record(
            "engine.start",
            engine=spec.name,
            engine_key=spec.engine_key,
            role=spec.role,
            attempt=self.attempt,
            argv=[],
            launcher="attach",
            log=None,
            url=self.url,
        )
        return AttachedEngine(self.url, spec, record=record)


class AttachedEngine:
    """See ``launcher.Engine``; ``stop`` ends nothing, and there is no log to read a cause from."""

    log_path = None

    def __init__(self, url: str, spec: EngineSpec, *, record: Record) -> None:
        self.name, self.url, self._record = spec.name, url, record
        self._failed = self._stopped = False
        self._began_ns = time.monotonic_ns()
        self.model = self._served_model(spec)

    def _served_model(self, spec: EngineSpec) -> str:
        where = f"{self.url}/v1/models"
        try:
            answer = probe.get(where)
            answer.raise_for_status()
            served = answer.json()["data"][0]
            model, limit = str(served["id"]), served.get("max_model_len")
        except requests.ConnectionError as error:
            raise UsageError(f"nobody answers at {self.url}; start the engine or correct --attach.") from error
        except requests.Timeout as error:
            raise UsageError(
                f"{where} did not answer within {probe.LIMIT_S:.0f} s; is the engine busy or stuck?"
            ) from error
        except (requests.RequestException, LookupError, TypeError, ValueError) as error:
            raise UsageError(f"{self.url} is no OpenAI server: {where} answered with something else.") from error
        if limit and spec.max_model_len and limit < spec.max_model_len:
            raise UsageError(
                f"the engine at {self.url} takes {limit} tokens and {spec.max_model_len} are needed; ask for shorter "
                "prompts with --lengths."
            )
        return model

    def wait_ready(self, limit_s: float) -> None:
        if wait(self.alive, limit_s=limit_s) is not Outcome.READY:
            text = f"the engine at {self.url} was not healthy within {limit_s:.0f} s; look at its log"
            raise self._fail(EngineTimeout(text), stage="start")
        self._record("engine.ready", engine=self.name, start_s=(time.monotonic_ns() - self._began_ns) / 1e9)

    def alive(self) -> bool:
        return probe.is_healthy(self.url)

    def check(self, *, settle_s: float = 0.0) -> None:
        if settle_s:
            wait(lambda: not self.alive(), limit_s=settle_s)
        if not self.alive():
            text = f"the engine at {self.url} no longer answers /health; look at its log"
            raise self._fail(EngineCrashed(text), stage="run")

    def _fail(self, error: EngineTimeout | EngineCrashed, *, stage: str) -> EngineTimeout | EngineCrashed:
        if not self._failed:
            self._failed = True
            name = type(error).__name__
            self._record("engine.failed", engine=self.name, stage=stage, error=name, cause=error.cause, log_tail="")
        return error

    def cause(self) -> str:
        return ""

    def log_tail(self, lines: int = 40) -> str:
        return ""

    def stop(self, limit_s: float = 0.0) -> None:
        if not self._stopped:
            self._stopped = True
            self._record("engine.stop", engine=self.name, graceful=True, stop_s=0.0)

    def __enter__(self) -> AttachedEngine:
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()
