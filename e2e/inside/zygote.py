"""Imports vLLM once, then forks an engine per order: ``python -m e2e.inside.zygote FD MODULE...``.

FD is one end of a pair of Unix sockets that keep messages apart; each message is one JSON object. The rig sends orders
{"module", "argv", "env", "marks", "cwd", "log"}. We say {"ready": true} once the modules are imported, then for each
engine {"pid"} when it leads a session of its own, and {"ended": pid, "status"} (of waitpid) when it ended. When the rig
closes its end we end, and the kernel ends the engines with us.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import importlib.util
import json
import os
import runpy
import signal
import socket
import sys
import tempfile

_PR_SET_PDEATHSIG = 1
_BYTES = 1 << 20
_CWD = os.getcwd()


def serve(orders: socket.socket) -> dict | None:
    """Forks an engine per order. Returns its order in the engine, and None in the zygote when the rig is gone."""

    def tell_ended(*_: object) -> None:
        with contextlib.suppress(ChildProcessError, OSError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                _tell(orders, ended=ended[0], status=ended[1])

    signal.signal(signal.SIGCHLD, tell_ended)
    gc.collect()
    gc.freeze()  # a collection in an engine would copy every page that it shares with us
    _tell(orders, ready=True)
    zygote = os.getpid()
    while message := orders.recv(_BYTES):
        if os.fork() == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            os.setsid()
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != zygote:
                os._exit(1)
            _tell(orders, pid=os.getpid())
            orders.close()
            return json.loads(message)
    return None


def _tell(to: socket.socket, **message: object) -> None:
    to.send(json.dumps(message).encode())


def become(order: dict) -> str:
    """Gives this fork all that ``python -m`` would have started with; returns the file of its module."""
    for name, value in order["marks"].items():
        _mark(name, value)
    log = os.open(order["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    for stream in (1, 2):
        os.dup2(log, stream)
    os.close(log)
    os.chdir(order["cwd"])
    inherited = {_CWD, *_paths()}
    os.environ.clear()
    os.environ.update(order["env"])
    tempfile.tempdir = None  # chosen by an import, from our environment
    sys.path[:] = [order["cwd"], *_paths(), *(path for path in sys.path if path not in inherited)]
    importlib.invalidate_caches()
    file = importlib.util.find_spec(order["module"]).origin
    sys.argv = [file, *order["argv"]]
    _title(" ".join([sys.executable, "-m", order["module"], *order["argv"]]))
    _fork_further()
    return file


def _paths() -> list[str]:
    return [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]


def _mark(name: str, value: str) -> None:
    """Writes over a variable where the kernel shows it: /proc tells for ever what a process was executed with, which
    for a fork is the zygote's environment. The old value must be at least three bytes longer."""
    libc = ctypes.CDLL(None)
    libc.getenv.restype = ctypes.c_void_p
    room = len(os.environ[name].encode())
    text = value.encode() + b"\0_="
    ctypes.memmove(libc.getenv(name.encode()), text.ljust(room, b"."), room)


def _title(text: str | None = None) -> None:
    """Names this process for ps. vLLM's library for it finds where titles are by the environment that we were executed
    with, so it must look (None) before a fork replaces that."""
    with contextlib.suppress(ModuleNotFoundError):
        title = importlib.import_module("setproctitle")
        title.getproctitle() if text is None else title.setproctitle(text)


def _fork_further() -> None:
    """vLLM on a CPU starts its engine core and workers anew, since each gets its own OpenMP variables; with
    VLLM_CPU_OMP_THREADS_BIND=nobind they get none, and can be forks as they are on a GPU (vllm/platforms/cpu.py)."""
    if platform := sys.modules.get("vllm.platforms.cpu"):
        check = platform.CpuPlatform.check_and_update_config

        def checked(config: object) -> None:
            check(config)
            os.environ["VLLM_WORKER_MULTIPROC_METHOD"] = "fork"

        platform.CpuPlatform.check_and_update_config = staticmethod(checked)


if __name__ == "__main__":
    with socket.socket(fileno=int(sys.argv[1])) as rig:
        rig.set_inheritable(False)
        _title()
        for name in sys.argv[2:]:
            with contextlib.suppress(ModuleNotFoundError):  # another version of vLLM may have it elsewhere
                importlib.import_module(name)
        engine = serve(rig)
    if engine:
        # from here on this is the engine's main module: its exit code, traceback and end are Python's own
        file = become(engine)
        try:
            runpy.run_path(file, run_name="__main__")
        except BaseException:
            gc.unfreeze()  # libraries call what is frozen at the end a leak, after the words that say why it ended
            raise
