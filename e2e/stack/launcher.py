"""What starts an engine, and the handle it gives: processes, containers and attach have one life cycle."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol, runtime_checkable

from e2e.base.event import Record
from e2e.stack.spec import EngineSpec


@runtime_checkable
class Engine(Protocol):
    """A started engine. As a context manager it is stopped at the end, whatever happened.

    ``url`` has no slash at the end and is final once ``wait_ready`` returned; ``model`` is the name to put into
    requests. Events: ``engine.start`` by the launcher, the others by the handle, each once.
    """

    name: str
    model: str
    log_path: Path | None

    @property
    def url(self) -> str: ...

    def wait_ready(self, limit_s: float) -> None:
        """Returns when requests are answered. Raises EngineRefused (it ended first) or EngineTimeout (too slow), both
        with the root cause and the log's tail, after recording ``engine.failed``; records ``engine.ready`` else."""

    def alive(self) -> bool: ...

    def check(self, *, settle_s: float = 0.0) -> None:
        """Raises EngineCrashed, after recording ``engine.failed`` once, when the engine has ended since it was ready.
        ``settle_s``: how long to wait for the end of one that has just answered with an error."""

    def cause(self) -> str:
        """The log line that says why the engine failed, or an empty string."""

    def stall(self) -> str:
        """Why an engine that is alive answers nothing, as far as its log's own counts tell; else an empty string."""

    def log_tail(self) -> str: ...

    def stop(self, limit_s: float = 20.0) -> None:
        """Ends the engine and all that it started, within about twice the limit. Never raises, may be called again."""

    def kill(self) -> None:
        """SIGKILL to it and all that it started; ``stop`` then tidies up. Never raises."""

    def __enter__(self) -> Engine: ...

    def __exit__(self, *exc: object) -> None: ...


@runtime_checkable
class Launcher(Protocol):
    """Records ``engine.start`` before it acts; does not wait."""

    def start(self, spec: EngineSpec, *, log_path: Path, record: Record) -> Engine: ...
