"""What we start on this machine: how it is spawned, what it says, how it ends."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import psutil

from e2e.base.errors import SettingsError
from e2e.stack.owned import ENGINE_MARK, MARK, marked
from e2e.stack.reaper import KILL_LIMIT_S, kill
from e2e.waits import wait

#: Bytes of a log that are read for its cause and its tail.
_LOG_BYTES = 4 << 20


class Handle(Protocol):
    """As much of ``subprocess.Popen`` as is needed here."""

    pid: int

    def poll(self) -> int | None: ...


@dataclass(frozen=True)
class Log:
    """``since``: where, in bytes, that begins which is asked for."""

    path: Path
    since: int = 0

    def text(self) -> str:
        try:
            with self.path.open("rb") as log:
                log.seek(max(self.since, self.path.stat().st_size - _LOG_BYTES))
                return log.read().decode(errors="replace")
        except OSError:
            return ""

    def tail(self, lines: int = 40) -> str:
        return "\n".join(self.text().splitlines()[-lines:])

    def last_line(self) -> str:
        return self.text().rstrip().rpartition("\n")[2] or "nothing"


@dataclass(frozen=True)
class Child:
    """A process in a session of its own that carries the marks of ``run_id`` and ``name``, and all that came of it."""

    handle: Handle
    name: str
    run_id: str

    def alive(self) -> bool:
        return self.handle.poll() is None

    def ended_with(self) -> str:
        code = self.handle.poll()
        if code is None or code >= 0:
            return f"exit code {code}"
        hint = " (out of memory?)" if -code == signal.SIGKILL else ""
        return f"{signal.Signals(-code).name}{hint}"

    def processes(self) -> list[psutil.Process]:
        """It, its descendants, and whatever else carries its marks: one that left the tree too."""
        found = {}
        with contextlib.suppress(psutil.Error):
            if self.alive():  # else its pid may be another's by now
                leader = psutil.Process(self.handle.pid)
                found = {process.pid: process for process in (leader, *leader.children(recursive=True))}
        for process in marked(ENGINE_MARK, self.name):
            with contextlib.suppress(psutil.Error):
                if process.environ().get(MARK) == self.run_id:
                    found[process.pid] = process
        return list(found.values())

    def signal(self, *numbers: signal.Signals) -> None:
        """To its session."""
        for number in numbers if self.alive() else ():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.handle.pid, number)

    def end(self, *numbers: signal.Signals, limit_s: float) -> bool:
        """Asks by these signals, then kills what is left. Did all end by themselves? Never raises."""
        was_alive = self.alive()
        deadline_s = time.monotonic() + limit_s * was_alive
        processes = self.processes()
        self.signal(*numbers)
        self._wait(deadline_s - time.monotonic())
        psutil.wait_procs(self._but_leader(processes), timeout=max(0.0, deadline_s - time.monotonic()))
        return not self.kill() and was_alive

    def kill(self) -> list[psutil.Process]:
        """All of it that there is, which is told."""
        processes = self.processes()
        self.signal(signal.SIGKILL)
        kill(self._but_leader(processes))
        self._wait(KILL_LIMIT_S)
        return processes

    def _wait(self, limit_s: float) -> None:
        """For the leader; by its handle, since psutil would take its exit code away."""
        wait(lambda: not self.alive(), limit_s=limit_s, every_s=0.05)

    def _but_leader(self, processes: list[psutil.Process]) -> list[psutil.Process]:
        return [process for process in processes if process.pid != self.handle.pid]


def spawn(
    what: str,
    argv: Sequence[str],
    *,
    env: Mapping[str, str],
    log_path: Path,
    cwd: Path | None = None,
    fork: Callable[[], Handle | None] = lambda: None,
) -> Handle:
    """Starts ``argv`` in a session of its own, its words behind those that the log has already; or takes what ``fork``
    gives. Raises SettingsError when the log can't be written or the program can't be run."""
    try:
        log_path.parent.mkdir(parents=True, exist_ok=True)
        with log_path.open("ab") as log:
            return fork() or subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, start_new_session=True,
                cwd=cwd, env=env,
            )  # fmt: skip
    except OSError as error:
        raise SettingsError(f"{what} can't be run: {error.strerror}: {error.filename}.") from error
