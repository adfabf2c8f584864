"""Servers of a store: what a connector needs beside its engines.

A listening port is not enough: a server is ready when its log says so and its probe gets what the engine will ask for.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path

import psutil

from e2e.base.connector import ServiceSpec, filled
from e2e.base.errors import EngineCrashed, EngineError, EngineRefused, EngineTimeout, SettingsError
from e2e.stack.ledger import Ledger
from e2e.stack.process import HOST, HeldPort
from e2e.stack.reaper import kill
from e2e.waits import Outcome, wait

_STOP_S = 5.0


class Service:
    """One server, started by us or only asked (``argv`` empty)."""

    def __init__(
        self, spec: ServiceSpec, *, store: str, ledger: Ledger, environ: Mapping[str, str], log_dir: Path
    ) -> None:
        self.spec, self.name, self._ledger, self._environ = spec, f"{store}.{spec.name}", ledger, environ
        self.log_path = log_dir / f"{self.name}.log"
        self.address = spec.address or ""
        self.popen: subprocess.Popen | None = None
        self._held: HeldPort | None = None
        self._log_from = 0
        self._broken = False

    def start(self, addresses: Mapping[str, str]) -> None:
        """``addresses``: of the servers before it."""
        if self.spec.argv:
            self._held = self._held or HeldPort()
            self.address = f"{HOST}:{self._held.port}"
            self._spawn({**addresses, self.spec.name: self.address})
            self._wait_for_log()
        self._wait_for_probe()

    def _spawn(self, places: Mapping[str, str]) -> None:
        argv = [str(filled(word, places)) for word in self.spec.argv]
        if self.spec.within:
            argv = self.spec.within(argv)
        env = {**self._environ, **self.spec.env, "PYTHONUNBUFFERED": "1", **self._ledger.marks(self.name)}
        # not every server binds beside a socket that is held for it, so the port is free for a moment
        self._release_port()
        try:
            self.log_path.parent.mkdir(parents=True, exist_ok=True)
            with self.log_path.open("ab") as log:
                self._log_from = log.tell()
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

    def _release_port(self) -> None:
        if self._held:
            self._held.release()
            self._held = None

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
            raise self._refused(f"it ended with {self.exit_code()}: {self._last_line()}")
        if outcome is Outcome.LATE:
            raise self._late(f"its log does not say {spec.ready!r}; its last word: {self._last_line()}")

    def _wait_for_probe(self) -> None:
        probe = self.spec.probe
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
            raise self._refused(f"it ended with {self.exit_code()}: {self._last_line()}")
        if outcome is Outcome.LATE:
            raise self._late(last[-1].cause)

    def alive(self) -> bool:
        return self.popen is None or self.popen.poll() is None

    def died(self) -> bool:
        """Has it ended though nobody here broke it?"""
        return not self._broken and not self.alive()

    def exit_code(self) -> str:
        return f"exit code {self.popen.poll()}"

    def check(self) -> None:
        if self._broken:
            return
        if not self.alive():
            raise self.crash(f"{self.spec.name} ended with {self.exit_code()}")
        try:
            if self.spec.probe:
                self.spec.probe(self.spec, self.address)
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
        """What it said since it was started last."""
        try:
            with self.log_path.open("rb") as log:
                log.seek(self._log_from)
                return log.read().decode(errors="replace")
        except OSError:
            return ""

    def _tail(self, lines: int = 40) -> str:
        return "\n".join(self.log().splitlines()[-lines:])

    def _last_line(self) -> str:
        return self.log().rstrip().rpartition("\n")[2] or "nothing"

    # break and mend

    def kill(self) -> None:
        self._broken = True
        kill(self._processes())
        self.popen.wait()
        self._held = HeldPort(int(self.address.rpartition(":")[2]))

    def restart(self, addresses: Mapping[str, str]) -> None:
        """After ``kill``."""
        self.start(addresses)
        self._broken = False

    def suspend(self) -> None:
        self._broken = True
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)
        self._broken = False

    def _processes(self) -> list[psutil.Process]:
        with contextlib.suppress(psutil.Error):
            leader = psutil.Process(self.popen.pid)
            return [leader, *leader.children(recursive=True)]
        return []

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.popen.pid, number)

    def stop(self) -> None:
        """SIGTERM, then SIGKILL for what is left of its session. Never raises."""
        self._release_port()
        if self.popen is None or not self.alive():  # then its pid may be another's by now
            return
        processes = self._processes()
        self._signal(signal.SIGTERM)
        self._signal(signal.SIGCONT)
        _, left = psutil.wait_procs(processes, timeout=_STOP_S)
        kill(left)
        self.popen.poll()
