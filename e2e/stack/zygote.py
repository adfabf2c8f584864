"""Engines that start in 4 s instead of 20: forks of a process that has imported vLLM once (inside/zygote.py).

The imports are what a start costs, and vLLM does them three times. A fork gets the same command line, environment,
folder and log as a process started anew; what it can't get is a variable that the imports have read already, so an
engine that needs another one is no business of a zygote (``fits``).
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from e2e.base.errors import EngineRefused
from e2e.stack.ledger import Ledger
from e2e.stack.owned import ENGINE_MARK
from e2e.stack.root_cause import root_cause
from e2e.waits import Outcome, wait

#: What an engine would import first; those that another version of vLLM lacks are left out.
MODULES = (
    "vllm.entrypoints.openai.api_server", "vllm.v1.engine.core", "vllm.v1.executor.multiproc_executor",
    "vllm.v1.worker.cpu_worker", "vllm.model_executor.models.llama",
)  # fmt: skip
#: Read by vLLM, or by us, only when an engine is under way; in everything else an engine must be like its zygote.
LATE = ("TMPDIR", "VLLM_RPC_BASE_PATH", "VLLM_KV_CACHE_LAYOUT", "MARU_E2E_ATTENTION", ENGINE_MARK)
#: Bytes kept free in a zygote's environment for the mark of the engine that its fork becomes: an engine's name is that
#: of its log, too, so it has 251 at most.
_ROOM = 256
_START_LIMIT_S = 180.0
_FORK_LIMIT_S = 20.0
_BYTES = 1 << 20


@dataclass(frozen=True)
class Forked:
    """As much of ``subprocess.Popen`` as an engine's handle needs."""

    pid: int
    zygote: Zygote

    def poll(self) -> int | None:
        """Exit code, negative for a signal; None while it runs. It never outlives its zygote."""
        return self.zygote.exit_code(self.pid)


class Zygote:
    """One of a run; begun by the first engine that may be forked. As a context manager it is ended at the end.

    ``python``: the interpreter that has vLLM. May be used from several threads. Its imports' words are in
    ``zygote.log`` beside the first engine's log.
    """

    def __init__(self, *, ledger: Ledger, modules: Sequence[str] = MODULES) -> None:
        self._ledger, self._modules = ledger, modules
        self._lock, self._fitting = threading.RLock(), threading.Lock()
        self._popen: subprocess.Popen | None = None
        self._socket: socket.socket | None = None
        self._python = ""
        self._environment: dict[str, str] = {}
        self._ready = self._open = False
        self._pids: list[int] = []
        self._ended: dict[int, int] = {}

    def fits(self, env: Mapping[str, str], *, python: str) -> bool:
        """May an engine with this environment be a fork? The zygote is like the first that may: on Linux."""
        # what binds threads needs a process executed for it (inside/zygote.py, _fork_further)
        if sys.platform != "linux" or env.get("VLLM_CPU_OMP_THREADS_BIND") != "nobind":
            return False
        with self._fitting:  # of engines that start at once, one is the first
            if not self._python:
                self._python, self._environment = python, _early(env)
            return (python, _early(env)) == (self._python, self._environment)

    def fork(self, argv: Sequence[str], *, env: Mapping[str, str], cwd: Path, log_path: Path) -> Forked:
        """``argv``: python -m module and its words. Raises EngineRefused, with the cause, when there can't be a fork;
        then the engine can still be started anew."""
        python, _, module, *words = argv
        order = {"module": module, "argv": words, "env": dict(env), "cwd": str(cwd), "log": str(log_path)}
        order["marks"] = {ENGINE_MARK: env[ENGINE_MARK]}
        with self._lock:
            if not self._alive():
                self._begin(python, env, log_path.with_name("zygote.log"))
            known = len(self._pids)
            try:
                self._socket.send(json.dumps(order).encode())
            except OSError as error:
                raise EngineRefused("the zygote takes no orders", cause=str(error)) from error
            if self._wait(lambda: len(self._pids) > known, _FORK_LIMIT_S) is not Outcome.READY:
                self._end()
                raise EngineRefused("the zygote did not fork", cause="it gave no process id")
            return Forked(self._pids[-1], self)

    def exit_code(self, pid: int) -> int | None:
        with self._lock:
            self._hear()
            if pid in self._ended:
                return os.waitstatus_to_exitcode(self._ended[pid])
            return None if self._open and pid in self._pids else -signal.SIGKILL

    def close(self) -> None:
        with self._lock:
            if self._popen:
                self._end()

    def _begin(self, python: str, env: Mapping[str, str], log_path: Path) -> None:
        self.close()
        self._pids, self._ready, self._open = [], False, True
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.setblocking(False)
        with theirs, log_path.open("ab") as log:
            self._popen = subprocess.Popen(
                [python, "-m", "e2e.inside.zygote", str(theirs.fileno()), *self._modules],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                cwd="/",
                pass_fds=[theirs.fileno()],
                env=self._environment | self._ledger.marks("." * _ROOM),
            )
        outcome = self._wait(lambda: self._ready, _START_LIMIT_S)
        if outcome is not Outcome.READY:
            self._end()
            why = "ended" if outcome is Outcome.DEAD else f"was not ready within {_START_LIMIT_S:.0f} s"
            raise EngineRefused(f"the zygote {why}", cause=root_cause(log_path.read_text(errors="replace")))

    def _alive(self) -> bool:
        self._hear()
        return self._open and self._popen is not None and self._popen.poll() is None

    def _wait(self, ready, limit_s: float) -> Outcome:
        def heard() -> bool:
            self._hear()
            return ready()

        return wait(heard, dead=lambda: not self._open, limit_s=limit_s)

    def _hear(self) -> None:
        """Takes what the zygote and newborn engines have said; the end of it is the end of them all."""
        while self._open:
            try:
                message = self._socket.recv(_BYTES)
            except BlockingIOError:
                return
            except OSError:
                message = b""
            if not message:
                self._open = False
                return
            said = json.loads(message)
            self._ready |= "ready" in said
            if "pid" in said:
                self._pids.append(said["pid"])
                self._ended.pop(said["pid"], None)
            if "ended" in said:
                self._ended[said["ended"]] = said["status"]

    def _end(self) -> None:
        self._open = False
        self._socket.close()
        self._popen.kill()
        self._popen.wait()

    def __enter__(self) -> Zygote:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def _early(env: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in env.items() if name not in LATE}
