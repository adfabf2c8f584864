"""Engines as processes of this machine: own session, own port on 127.0.0.1, own temporary folder, own log."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import psutil

from e2e.base.errors import EngineRefused, SettingsError
from e2e.base.event import Record
from e2e.stack import probe
from e2e.stack.child import Child, spawn
from e2e.stack.ledger import Ledger
from e2e.stack.logged import LoggedEngine
from e2e.stack.reaper import remove_segments, shared_memory_of
from e2e.stack.spec import EngineSpec
from e2e.stack.zygote import Forked, Zygote
from e2e.waits import Outcome, wait

HOST = "127.0.0.1"
_PORT_TAKEN = "address already in use"


class HeldPort:
    """A free port that nobody else is given until the engine listens on it.

    A socket that is bound and never listens: the kernel hands the port to no one who asks for any, refuses one who
    names it, and lets a server with SO_REUSEADDR (vLLM sets it) bind it beside ours.
    """

    def __init__(self, port: int = 0) -> None:
        """``port``: this one, which nobody listens on; 0: any."""
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        self._socket.bind((HOST, port))
        self.port: int = self._socket.getsockname()[1]

    def release(self) -> None:
        self._socket.close()


class ProcessLauncher:
    """``environ``: what engines inherit. ``python``: the interpreter that has vLLM. ``attempt``: of this run.
    ``zygote``: forks the engines that it fits; None starts every engine anew."""

    def __init__(
        self,
        *,
        ledger: Ledger,
        environ: Mapping[str, str],
        attempt: int = 1,
        python: str = sys.executable,
        hold_port: Callable[[], HeldPort] = HeldPort,
        zygote: Zygote | None = None,
    ) -> None:
        self.ledger, self.environ, self.attempt, self.python = ledger, environ, attempt, python
        self.hold_port, self.zygote = hold_port, zygote

    def start(self, spec: EngineSpec, *, log_path: Path, record: Record) -> ProcessEngine:
        """Raises SettingsError when the log can't be written or the interpreter can't be run."""
        return ProcessEngine(self, spec, log_path=log_path, record=record)

    def forks(self, spec: EngineSpec, env: Mapping[str, str]) -> bool:
        """Will this engine be a fork of the zygote?"""
        return self.zygote is not None and spec.device == "cpu" and self.zygote.fits(env, python=self.python)


class ProcessEngine(LoggedEngine):
    """A running API server and its children. See ``launcher.Engine`` for the meaning of each method."""

    def __init__(self, launcher: ProcessLauncher, spec: EngineSpec, *, log_path: Path, record: Record) -> None:
        super().__init__(spec, log_path=log_path, record=record)
        self._launcher = launcher
        # short: vLLM puts Unix sockets there, whose whole path may have 107 bytes
        self._tmp = launcher.ledger.folder(Path(tempfile.gettempdir()), f"t{time.monotonic_ns() // 1000 % 10**9}")
        self._held: HeldPort | None = None
        self._announced = False
        self._spawn()

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}"

    def _spawn(self) -> None:
        self._release_port()
        self._held = self._launcher.hold_port()
        self.port = self._held.port
        argv = self.spec.argv(self.port, python=self._launcher.python, host=HOST)
        env = self._environment()
        forks = self._launcher.forks(self.spec, env)
        if not self._announced:
            how = "fork" if forks else "stock"
            self._announce(argv, launcher="process", attempt=self._launcher.attempt, started=how)
            self._announced = True
        try:
            handle = spawn(
                f"engine {self.name}", argv, env=env, log_path=self.log_path, cwd=self._tmp,
                fork=lambda: self._fork(argv, env) if forks else None,
            )  # fmt: skip
        except SettingsError:
            self._release_port()
            raise
        self._child = Child(handle, self.name, self._launcher.ledger.run_id)

    def _fork(self, argv: Sequence[str], env: Mapping[str, str]) -> Forked | None:
        """None, with a note, when the zygote can't: no engine fails for want of a faster start."""
        try:
            return self._launcher.zygote.fork(argv, env=env, cwd=self._tmp, log_path=self.log_path)
        except EngineRefused as error:
            self._record("note", text=f"engine {self.name} is started anew: {error} ({error.cause})")
            return None

    def _environment(self) -> dict[str, str]:
        env = self.spec.environment(self._launcher.environ)
        if self.spec.device == "cuda":
            # torch would put its compile cache under TMPDIR, and lose it with every engine
            env.setdefault("TORCHINDUCTOR_CACHE_DIR", f"{tempfile.gettempdir()}/torchinductor_{os.getuid()}")
        env |= {"TMPDIR": str(self._tmp), "VLLM_RPC_BASE_PATH": str(self._tmp), "PYTHONUNBUFFERED": "1"}
        return env | self._launcher.ledger.marks(self.name)

    def _release_port(self) -> None:
        if self._held:
            self._held.release()
            self._held = None

    def wait_ready(self, limit_s: float) -> None:
        deadline = time.monotonic() + limit_s
        outcome = wait(self._ready, dead=lambda: not self.alive(), limit_s=limit_s)
        if outcome is Outcome.DEAD and self._port_taken():
            taken = self.port
            self.log_path.replace(self.log_path.with_suffix(".port-taken.log"))
            self._spawn()
            self._record("note", text=f"engine {self.name}: port {taken} was taken in between, now on {self.port}")
            outcome = wait(self._ready, dead=lambda: not self.alive(), limit_s=deadline - time.monotonic())
        if outcome is Outcome.READY:
            self._release_port()
            self._record("engine.ready", engine=self.name, start_s=(time.monotonic_ns() - self._began_ns) / 1e9)
            return
        raise self._never_ready(outcome, limit_s)

    def _ready(self) -> bool:
        """Each time, what it has mapped so far is owned: an engine that dies before it is ready leaves that, too."""
        self._launcher.ledger.own_shared_memory(shared_memory_of(self._child.processes()))
        return probe.is_healthy(self.url) and self._listens()

    def _listens(self) -> bool:
        """Is it ours that answers there? Another server may have got the port."""
        for process in self._child.processes():
            with contextlib.suppress(psutil.Error):
                for connection in process.net_connections(kind="tcp"):
                    if connection.status == psutil.CONN_LISTEN and connection.laddr.port == self.port:
                        return True
        return False

    def _port_taken(self) -> bool:
        return self._held is not None and _PORT_TAKEN in self.log.text().lower()

    def alive(self) -> bool:
        return self._child.alive()

    def _end_cause(self) -> str:
        if self._port_taken():
            return f"port {self.port} on {HOST} was taken by another process between choice and use, twice"
        return self.cause() or f"it ended with {self._child.ended_with()} and said nothing"

    def kill(self) -> None:
        self._child.kill()

    def stop(self, limit_s: float = 20.0) -> None:
        if self._stopped:
            return
        self._stopped = True
        began_ns = time.monotonic_ns()
        segments = shared_memory_of(self._child.processes())
        graceful = self._child.end(signal.SIGINT, limit_s=limit_s)
        self._release_port()
        remove_segments(segments)
        shutil.rmtree(self._tmp, ignore_errors=True)
        self._record("engine.stop", engine=self.name, graceful=graceful, stop_s=(time.monotonic_ns() - began_ns) / 1e9)
