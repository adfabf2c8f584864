"""Writing a recording; ``reader.py`` reads it.

One event a line: ``{"seq": n, "t_ns": ns, "kind": kind, "data": {...}}``. ``seq`` counts from 0 over the whole file,
resumed attempts included, so that a lost line shows. A line counts once its newline is there: whoever dies in mid-write
leaves at most one torn last line, whose event had not been acknowledged to anyone.
"""

from __future__ import annotations

import fcntl
import json
import os
import threading
import time
from pathlib import Path
from types import TracebackType

from e2e.base.errors import RigError, UsageError
from e2e.base.event import Event
from e2e.base.redact import redacted
from e2e.recording.reader import decode, packed, read, whole_bytes

__all__ = ["Journal", "read"]


class Journal:
    """The one writer of a recording; several threads may share it, a second process is refused.

    What looks like a secret is not written, nor are the ``secrets`` that are known beforehand, see base/redact.py.
    Opening an existing file continues it: a torn last line is cut off first. Raises UsageError when another process
    writes it, RecordingError when it is broken, RigError when the file can't be written.
    """

    def __init__(self, path: Path | str, *, secrets: frozenset[str] = frozenset()) -> None:
        self.path = Path(path)
        self._secrets = secrets
        self._lock = threading.Lock()
        self._fd: int | None = _open(self.path)
        try:
            _lock(self._fd, self.path)
            self._next_seq = len(read(self.path))
            os.ftruncate(self._fd, whole_bytes(self.path.read_bytes()))
        except BaseException:
            self.close()
            raise

    def record(self, kind: str, **data: object) -> Event:
        """Append one event; its line is with the kernel when this returns, so it survives kill -9.

        Raises ValueError for an unknown kind or missing key, RigError for a value that could not be read again and for
        a full disk.
        """
        with self._lock:
            if self._fd is None:
                raise RigError(f"the recording {self.path} is closed, so the event {kind} can't be recorded")
            data, self._secrets = redacted(data, self._secrets)
            event = Event(kind, data, time.monotonic_ns())
            seq, end = self._next_seq, os.fstat(self._fd).st_size
            line = encode(event, seq)
            try:
                _write(self._fd, line, self.path)
                self._next_seq = seq + 1
            except BaseException:  # a full disk, or a signal wherever it strikes: one whole line or nothing
                os.ftruncate(self._fd, end)
                self._next_seq = seq
                raise
            return event

    def close(self) -> None:
        with self._lock:
            if self._fd is not None:
                os.close(self._fd)
                self._fd = None

    def __enter__(self) -> Journal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def encode(event: Event, seq: int) -> bytes:
    """The line of an event. Raises RigError for a value that could not be read again."""
    entry = {"seq": seq, "t_ns": event.t_ns, "kind": event.kind, "data": dict(event.data)}
    try:
        line = json.dumps(entry, allow_nan=False, separators=(",", ":")).encode() + b"\n"
    except (ValueError, TypeError) as error:
        raise RigError(f"the event {event.kind} holds a value that JSON can't hold: {error}") from error
    try:
        decode(line, seq=seq)
    except ValueError as error:
        raise RigError(f"the event {event.kind} can't be recorded, for its line {error}") from error
    return line


def _open(path: Path) -> int:
    if packed(path).exists() and not path.exists():
        raise UsageError(f"the recording {packed(path)} is packed; unpack it by gunzip before it is continued")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise UsageError(f"the recording {path} can't be written ({error.strerror}); choose another --out") from error


def _lock(fd: int, path: Path) -> None:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise UsageError(f"another run is writing {path}; wait for it or choose another --out") from error


def _write(fd: int, line: bytes, path: Path) -> None:
    done = 0
    try:
        while done < len(line):
            done += os.write(fd, line[done:])
    except OSError as error:
        raise RigError(f"the recording {path} can't be written ({error.strerror}); free space and --resume") from error
