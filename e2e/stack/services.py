"""Servers that a connector needs beside the engine: started before it in order, watched, ended after it.

A listening port is not enough: a server is ready when its log says so and its probe gets what the engine will ask for.
When one dies, the engine is ended at once, since its requests would hang for minutes while /health says 200.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from e2e.base.connector import ServiceSpec, filled
from e2e.base.errors import EngineCrashed, EngineError, EngineRefused, EngineTimeout, SettingsError
from e2e.base.event import Record
from e2e.stack.ledger import Ledger
from e2e.stack.maru_servers import on_dax_folder, probe_maru
from e2e.stack.process import HOST, HeldPort
from e2e.stack.reaper import kill
from e2e.stack.waits import Outcome, wait

_WATCH_S = 0.5
_STOP_S = 5.0


@dataclass
class Services:
    """Running servers; ``addresses``: name -> host:port."""

    engine: str
    record: Record
    addresses: dict[str, str] = field(default_factory=dict)
    running: list[Service] = field(default_factory=list)
    _ended: threading.Event = field(default_factory=threading.Event)
    _crash: EngineCrashed | None = None

    def check(self) -> None:
        """Raises EngineCrashed, naming the server, when one has died or no longer answers; recorded as the engine's
        failure, since its requests hung on it."""
        try:
            if self._crash:
                raise self._crash
            for service in self.running:
                service.check()
        except EngineCrashed as crash:
            _failed(self.record, self.engine, "run", crash)
            raise

    @contextmanager
    def watched(self, end_engine: Callable[[], None]) -> Iterator[None]:
        """While this lasts, ``end_engine`` is called once when a server that we started dies."""
        own = [service for service in self.running if service.popen]
        if not own:
            yield
            return

        def watch() -> None:
            while not self._ended.wait(_WATCH_S):
                dead = next((service for service in own if not service.alive()), None)
                if dead:
                    # named now: ending the engine ends what else carries its mark
                    self._crash = dead.crash(f"{dead.spec.name} ended with exit code {dead.popen.poll()}")
                    end_engine()
                    return

        thread = threading.Thread(target=watch, name="services", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._ended.set()
            thread.join()


@contextmanager
def beside(
    specs: Sequence[ServiceSpec],
    *,
    engine: str,
    engine_key: str,
    attempt: int,
    ledger: Ledger,
    environ: Mapping[str, str],
    log_dir: Path,
    record: Record,
) -> Iterator[Services]:
    """Starts what ``engine`` needs; ends it, last first, whatever happened. Raises EngineRefused or EngineTimeout with
    the server's name, cause and cure, after recording that the engine, which now can't be started, failed."""
    services = Services(engine, record)
    with ExitStack() as stack:
        try:
            for spec in specs:
                service = Service(spec, engine=engine, ledger=ledger, environ=environ, log_dir=log_dir)
                stack.callback(service.stop)
                service.start(services.addresses)
                services.addresses[spec.name] = service.address
                services.running.append(service)
                record("note", text=f"{engine}: {spec.name} works at {service.address}.")
        except EngineError as error:
            record(
                "engine.start",
                engine=engine, engine_key=engine_key, role="connector", attempt=attempt, argv=list(service.spec.argv),
                launcher="service", log=str(service.log_path),
            )  # fmt: skip
            _failed(record, engine, "start", error)
            raise
        yield services


def _failed(record: Record, engine: str, stage: str, error: EngineError) -> None:
    record(
        "engine.failed",
        engine=engine, stage=stage, error=type(error).__name__, cause=error.cause, log_tail=error.log_tail,
    )  # fmt: skip


def probe_tcp(spec: ServiceSpec, address: str) -> None:
    """All that can be asked of a server whose protocol is not known here: does it listen?"""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=3.0).close()
    except OSError as error:
        cause = f"nothing listens at {address} ({error.strerror or error})"
        raise EngineTimeout(f"{spec.name}: {cause}.", cause=cause) from error


#: name -> what asks a server whether it works: raises EngineError until it does
PROBES: Mapping[str, Callable[[ServiceSpec, str], None]] = {"maru": probe_maru, "tcp": probe_tcp}


class Service:
    """One server, started by us or only asked (``argv`` empty)."""

    def __init__(
        self, spec: ServiceSpec, *, engine: str, ledger: Ledger, environ: Mapping[str, str], log_dir: Path
    ) -> None:
        self.spec, self.engine, self._ledger, self._environ = spec, engine, ledger, environ
        self.log_path = log_dir / f"{engine}.{spec.name}.log"
        self.address = spec.address or ""
        self.popen: subprocess.Popen | None = None

    def start(self, addresses: Mapping[str, str]) -> None:
        if self.spec.argv:
            self._spawn(addresses)
            self._wait_for_log()
        self._wait_for_probe()

    def _spawn(self, addresses: Mapping[str, str]) -> None:
        held = HeldPort()
        self.address = f"{HOST}:{held.port}"
        places = {**addresses, self.spec.name: self.address}
        argv = [str(filled(word, places)) for word in self.spec.argv]
        if self.spec.dax_folder:
            argv = on_dax_folder(argv, Path(self.spec.dax_folder))
        env = {
            **self._environ,
            **self.spec.env,
            "PYTHONUNBUFFERED": "1",
            **self._ledger.marks(f"{self.engine}.{self.spec.name}"),
        }
        # not every server binds beside a socket that is held for it, so the port is free for a moment
        held.release()
        try:
            self.log_path.parent.mkdir(parents=True, exist_ok=True)
            with self.log_path.open("ab") as log:
                self.popen = subprocess.Popen(
                    argv,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                    env=env,
                )
        except OSError as error:
            raise SettingsError(f"{self.spec.name} can't be run: {error.strerror}: {error.filename}.") from error

    def _wait_for_log(self) -> None:
        spec = self.spec

        def says(pattern: str | None) -> bool:
            return pattern is not None and re.search(pattern, self.log()) is not None

        outcome = wait(
            lambda: says(spec.useless) or spec.ready is None or says(spec.ready),
            dead=lambda: not self.alive(),
            limit_s=spec.limit_s,
        )
        if says(spec.useless):
            raise self._refused(next(line for line in self.log().splitlines() if re.search(str(spec.useless), line)))
        if outcome is Outcome.DEAD:
            raise self._refused(f"it ended with exit code {self.popen.poll()}: {self._last_line()}")
        if outcome is Outcome.LATE:
            raise self._late(f"its log does not say {spec.ready!r}; its last word: {self._last_line()}")

    def _wait_for_probe(self) -> None:
        probe = PROBES.get(self.spec.probe or "")
        if probe is None:
            return
        last: list[EngineError] = []

        def works() -> bool:
            try:
                probe(self.spec, self.address)
            except EngineTimeout as error:
                last.append(error)
                return False
            return True

        try:
            outcome = wait(works, dead=lambda: not self.alive(), limit_s=self.spec.limit_s)
        except EngineRefused as error:
            raise self._refused(error.cause) from error
        if outcome is Outcome.DEAD:
            raise self._refused(f"it ended with exit code {self.popen.poll()}: {self._last_line()}")
        if outcome is Outcome.LATE:
            raise self._late(last[-1].cause)

    def alive(self) -> bool:
        return self.popen is None or self.popen.poll() is None

    def check(self) -> None:
        if not self.alive():
            raise self.crash(f"{self.spec.name} ended with exit code {self.popen.poll()}")
        try:
            if probe := PROBES.get(self.spec.probe or ""):
                probe(self.spec, self.address)
        except EngineRefused:
            return  # a pool that is full by now is no dead server
        except EngineTimeout as error:
            raise self.crash(error.cause, ", whose requests then hang") from error

    def crash(self, what: str, then: str = "") -> EngineCrashed:
        cause = f"{what} under a running engine{then}"
        return EngineCrashed(f"{cause}; {self._cure()}.", cause=cause, log_tail=self._tail())

    def _refused(self, why: str) -> EngineRefused:
        cause = f"{self.spec.name} is of no use: {' '.join(why.split())}"
        return EngineRefused(f"{cause}; {self._cure()}.", cause=cause, log_tail=self._tail())

    def _late(self, why: str) -> EngineTimeout:
        cause = f"{self.spec.name} did not work within {self.spec.limit_s:g} s: {' '.join(why.split())}"
        return EngineTimeout(f"{cause}; {self._cure()}.", cause=cause, log_tail=self._tail())

    def _cure(self) -> str:
        cure = self.spec.cure or "see its log"
        return f"{cure} (log: {self.log_path})" if self.popen else cure

    def log(self) -> str:
        try:
            return self.log_path.read_text(errors="replace")
        except OSError:
            return ""

    def _tail(self, lines: int = 40) -> str:
        return "\n".join(self.log().splitlines()[-lines:])

    def _last_line(self) -> str:
        return self.log().rstrip().rpartition("\n")[2] or "nothing"

    def stop(self) -> None:
        """SIGTERM, then SIGKILL for what is left of its session. Never raises."""
        if self.popen is None:
            return
        with contextlib.suppress(psutil.Error):
            leader = psutil.Process(self.popen.pid)
            processes = [leader, *leader.children(recursive=True)]
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.popen.pid, signal.SIGTERM)
            _, left = psutil.wait_procs(processes, timeout=_STOP_S)
            kill(left)
        self.popen.poll()
