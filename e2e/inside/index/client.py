"""A connection to an index, and how an engine gets one. No call takes longer than its limit: the step waits for it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import msgspec

from e2e.inside.index import protocol as p

#: How long an index that gave no answer is not asked again. Seconds.
REST_S = 2.0
_START_S = 30.0
#: Who was held up past the limit, as ranks that spin on few cores are, still takes an answer that is there. Seconds.
GRACE_S = 0.05


class IndexGone(Exception):
    """No answer: why, one sentence. Whatever was asked for counts as not there."""


class IndexRefused(Exception):
    """The index says why this request makes no sense."""


class Client:
    """Safe to use from several threads and after a fork. ``address``: host:port. ``limit_s``: for one call, the
    connection included. An index that was gone is asked again after ``rest_s``; until then calls fail at once."""

    def __init__(self, address: str, *, name: str = "", limit_s: float = 5.0, rest_s: float = REST_S) -> None:
        self.address, self._name, self._limit_s, self._rest_s = address, name, limit_s, rest_s
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._pid = 0
        self._resting_until = 0.0
        self._why = ""

    def __call__(self, request: p.AnyRequest) -> object:
        """Its answer, of type ``request.answer``. Raises IndexGone or IndexRefused."""
        with self._lock:
            if time.monotonic() < self._resting_until:
                raise IndexGone(self._why)
            deadline = time.monotonic() + self._limit_s
            try:
                if self._socket is None or self._pid != os.getpid():
                    self._connect(deadline)
                return self._ask(request, deadline)
            except (OSError, msgspec.DecodeError) as error:
                self._drop()
                self._resting_until = time.monotonic() + self._rest_s
                self._why = f"the index at {self.address} does not answer ({error or type(error).__name__})"
                raise IndexGone(self._why) from None

    def welcome(self) -> p.Welcome:
        """Who answers there."""
        return self(p.Hello(p.VERSION, self._name))

    def _connect(self, deadline: float) -> None:
        host, _, port = self.address.rpartition(":")
        self._drop()
        self._socket = socket.create_connection((host, int(port)), timeout=_left(deadline))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self._pid = os.getpid()
        try:
            self._ask(p.Hello(p.VERSION, self._name), deadline)
        except IndexRefused:
            self._drop()
            raise

    def _ask(self, request: p.AnyRequest, deadline: float) -> object:
        self._socket.settimeout(_left(deadline))
        self._socket.sendall(p.frame(request))
        (length,) = p.LENGTH.unpack(self._receive(p.LENGTH.size, deadline))
        answer = p.decode_answer(self._receive(length, deadline))
        if answer.refused is not None:
            raise IndexRefused(f"the index at {self.address} refuses: {answer.refused}")
        return p.value(request, answer)

    def _receive(self, count: int, deadline: float) -> memoryview:
        found, there = memoryview(bytearray(count)), 0
        while there < count:
            self._socket.settimeout(_left(deadline))
            if not (more := self._socket.recv_into(found[there:])):
                raise ConnectionError("it ended the connection")
            there += more
        return found

    def _drop(self) -> None:
        """Closes our end; in a fork the parent's stays open."""
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.close()
            self._socket = None

    def close(self) -> None:
        with self._lock:
            self._drop()


def _left(deadline: float) -> float:
    return max(deadline - time.monotonic(), GRACE_S)


def own_index(folder: Path, size: int) -> str:
    """Address of the index that the processes of one engine share where nobody gave them any: the first one starts it,
    and it ends when the last one has. Raises IndexGone when it can't be started."""
    told, log = folder / "index.address", folder / "index.log"
    with (folder / "index.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if told.exists() and _answers(told.read_text()):
            return told.read_text()
        told.unlink(missing_ok=True)
        root = str(Path(__file__).resolve().parents[3])
        words = ["-m", "e2e.inside.index.server", "--size", str(size), "--until-alone", "--tell", str(told)]
        with log.open("ab") as said:
            process = subprocess.Popen(
                [sys.executable, *words], stdin=subprocess.DEVNULL, stdout=said, stderr=said, start_new_session=True,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH"))))},
            )  # fmt: skip
        deadline = time.monotonic() + _START_S
        while not told.exists():
            if process.poll() is not None or time.monotonic() > deadline:
                last = log.read_text(errors="replace").rstrip().rpartition("\n")[2] or "it said nothing"
                raise IndexGone(f"an index of its own could not be started in {folder} ({last})")
            time.sleep(0.01)  # noqa: TID251  (an engine has no rig and no tenacity)
        return told.read_text()


def _answers(address: str) -> bool:
    client = Client(address)
    try:
        return client.welcome().size > 0
    except (IndexGone, IndexRefused, ValueError):
        return False
    finally:
        client.close()
