"""What engines have in common that we start and that write a log: the cause of their end is in it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TypeVar

from e2e.base.errors import EngineCrashed, EngineError, EngineRefused, EngineTimeout
from e2e.base.event import Record, engine_failed
from e2e.stack.child import Log
from e2e.stack.root_cause import errors_before, root_cause, stall
from e2e.stack.spec import SERVED_MODEL, EngineSpec
from e2e.waits import Outcome, wait

Own = TypeVar("Own", bound="LoggedEngine")
Failure = TypeVar("Failure", bound=EngineError)


class LoggedEngine:
    """Half of ``launcher.Engine``; a launcher's handle adds how it is started, watched and stopped."""

    def __init__(self, spec: EngineSpec, *, log_path: Path, record: Record) -> None:
        self.name, self.spec, self.model = spec.name, spec, SERVED_MODEL
        self.log_path = log_path.resolve()
        self.log = Log(self.log_path)
        self._record = record
        self._failed = self._stopped = False
        self._began_ns = time.monotonic_ns()

    def _announce(self, argv: list[str], *, launcher: str, attempt: int, **about: object) -> None:
        """Records ``engine.start``, before anything is started."""
        about |= {"cell": self.spec.cell} if self.spec.cell else {}
        self._record(
            "engine.start", engine=self.name, engine_key=self.spec.engine_key, role=self.spec.role, attempt=attempt,
            argv=argv, env=self.spec.settings_env(), launcher=launcher, log=str(self.log_path), **about,
        )  # fmt: skip

    def alive(self) -> bool:
        raise NotImplementedError

    def stop(self, limit_s: float = 20.0) -> None:
        raise NotImplementedError

    def _end_cause(self) -> str:
        """Why it ended; never empty."""
        raise NotImplementedError

    def check(self, *, settle_s: float = 0.0) -> None:
        if settle_s and not self._stopped:
            wait(lambda: not self.alive(), limit_s=settle_s)
        if self._stopped or self.alive():
            return
        cause = self._end_cause()
        text = f"engine {self.name} crashed: {cause} (log: {self.log_path})"
        raise self._fail(EngineCrashed(text, cause=cause, log_tail=self.log_tail()), stage="run")

    def _fail(self, error: Failure, *, stage: str) -> Failure:
        """Records ``engine.failed``, once."""
        if not self._failed:
            self._failed = True
            engine_failed(self._record, self.name, stage, error)
        return error

    def _never_ready(self, outcome: Outcome, limit_s: float) -> EngineError:
        """Of a start that ended so, instead of READY."""
        tail = self.log.tail()
        if outcome is Outcome.LATE:
            text = f"engine {self.name} was not ready within {limit_s:.0f} s; its last word: {self.log.last_line()}"
            return self._fail(EngineTimeout(text, cause=self.cause() or text, log_tail=tail), stage="start")
        cause = self._end_cause()
        text = f"engine {self.name} ended before it was ready: {cause} (log: {self.log_path})"
        return self._fail(EngineRefused(text, cause=cause, log_tail=tail), stage="start")

    def cause(self) -> str:
        log = self.log.text()
        cause = root_cause(log)
        before = errors_before(log, cause)
        if before and cause:
            return f"{cause} (before it: {before[0]})"
        return cause or next(iter(before), "")

    def stall(self) -> str:
        return stall(self.log.text())

    def log_tail(self) -> str:
        return self.log.tail()

    def __enter__(self: Own) -> Own:
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()
