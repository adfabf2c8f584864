"""Writing and reading a recording.

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

from e2e.base.errors import RecordingError, RigError, UsageError
from e2e.base.event import SCHEMA, Event


class Journal:
    """The one writer of a recording; several threads may share it, a second process is refused.

    Opening an existing file continues it: a torn last line is cut off first. Raises UsageError when another process
    writes it, RecordingError when it is broken, RigError when the file can't be written.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self._lock = threading.Lock()
        self._fd: int | None = _open(self.path)
        try:
            _lock(self._fd, self.path)
            self._next_seq = len(read(self.path))
            os.ftruncate(self._fd, _whole_bytes(self.path.read_bytes()))
        except BaseException:
            self.close()
            raise

    def record(self, kind: str, **data: object) -> Event:
        """Append one event; its line is with the kernel when this returns, so it survives kill -9.

        Raises ValueError for an unknown kind or missing key, RigError for a value that JSON can't hold or a full disk.
        """
        with self._lock:
            if self._fd is None:
                raise RigError(f"the recording {self.path} is closed, so the event {kind} can't be recorded")
            event = Event(kind, data, time.monotonic_ns())
            _write(self._fd, _encode(event, self._next_seq), self.path)
            self._next_seq += 1
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


def read(path: Path | str) -> list[Event]:
    """All events of a recording, in order; one torn last line is left out.

    Raises RecordingError naming the line for anything else that is broken: a line that is no event, a lost or doubled
    line, a ``run.begin`` of another schema.
    """
    path = Path(path)
    try:
        content = path.read_bytes()
    except OSError as error:
        reason = error.strerror or str(error)
        raise RecordingError(
            f"no recording can be read at {path} ({reason}); give the folder that a run wrote"
        ) from error
    lines = content[: _whole_bytes(content)].splitlines()
    return [_decode(line, number, path) for number, line in enumerate(lines, start=1)]


def _whole_bytes(content: bytes) -> int:
    return content.rfind(b"\n") + 1


def _encode(event: Event, seq: int) -> bytes:
    line = {"seq": seq, "t_ns": event.t_ns, "kind": event.kind, "data": dict(event.data)}
    try:
        return json.dumps(line, allow_nan=False, separators=(",", ":")).encode() + b"\n"
    except (ValueError, TypeError) as error:
        raise RigError(f"the event {event.kind} holds a value that JSON can't hold: {error}") from error


def _decode(line: bytes, number: int, path: Path) -> Event:
    try:
        entry = json.loads(line)
        event = Event(entry["kind"], entry["data"], entry["t_ns"])
        seq = entry["seq"]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise RecordingError(f"{path} line {number} is no event ({error}); the file was changed or damaged") from error
    if seq != number - 1:
        raise RecordingError(f"{path} line {number} has seq {seq}, not {number - 1}: lines were lost, added or moved")
    if event.kind == "run.begin" and event["schema"] != SCHEMA:
        raise RecordingError(
            f"{path} line {number} has schema {event['schema']!r}, this version reads {SCHEMA!r} only; "
            "use the version that wrote it"
        )
    return event


def _open(path: Path) -> int:
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
    """One whole line or nothing: what a full disk cut short is taken back."""
    end = os.fstat(fd).st_size
    done = 0
    try:
        while done < len(line):
            done += os.write(fd, line[done:])
    except OSError as error:
        os.ftruncate(fd, end)
        raise RigError(f"the recording {path} can't be written ({error.strerror}); free space and --resume") from error
