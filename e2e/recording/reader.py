"""Reading a recording: every line is an event of the vocabulary, in its place, about things that were introduced."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path

import msgspec

from e2e.base.errors import RecordingError
from e2e.base.event import KINDS, SCHEMA, Event
from e2e.base.kinds import Table
from e2e.recording.references import References
from e2e.regular import read_bytes

_GZIP = b"\x1f\x8b"


class _Line(msgspec.Struct, forbid_unknown_fields=True):
    seq: int
    t_ns: int
    kind: str
    data: Table


def read(path: Path | str) -> list[Event]:
    """All events of a recording, in order; one torn last line is left out. Where ``path`` is not there but ``path``
    with .gz is, that is read.

    Raises RecordingError naming the line for anything else that is broken: a line that is no event, a value of another
    type than its kind has, a lost or doubled line, an event about an engine, cell or request that no earlier one
    introduced, a ``run.begin`` of another schema.
    """
    path, content = _content(Path(path))
    known = References()
    events = []
    for number, line in enumerate(content[: whole_bytes(content)].split(b"\n")[:-1], start=1):
        try:
            event = decode(line, seq=number - 1)
            known.add(event)
        except ValueError as error:
            raise RecordingError(f"{path} line {number} {error}; the file was changed or damaged") from error
        if event.kind == "run.begin" and event["schema"] != SCHEMA:
            raise RecordingError(
                f"{path} line {number} has schema {event['schema']!r}, this version reads {SCHEMA!r} only; "
                "use the version that wrote it"
            )
        events.append(event)
    return events


def packed(path: Path) -> Path:
    return path.with_name(f"{path.name}.gz")


def is_there(path: Path) -> bool:
    return path.is_file() or packed(path).is_file()


def whole_bytes(content: bytes) -> int:
    return content.rfind(b"\n") + 1


def decode(line: bytes, *, seq: int) -> Event:
    """Raises ValueError saying what ``line`` is or has instead."""
    try:
        entry = msgspec.json.decode(line, type=_Line)
        msgspec.msgpack.encode(entry)  # holds no integer of more than 64 bits, with which nothing here can reckon
    except (ValueError, OverflowError, RecursionError) as error:
        raise ValueError(f"is no event ({error})") from error
    if entry.seq != seq:
        raise ValueError(f"has seq {entry.seq}, not {seq}: lines were lost, added or moved")
    try:
        event = Event(entry.kind, entry.data, entry.t_ns)
        msgspec.convert(entry.data, KINDS[entry.kind])
    except ValueError as error:
        raise ValueError(f"is no event {entry.kind!r:.40} ({error})") from error
    return event


def _content(path: Path) -> tuple[Path, bytes]:
    if not path.exists():
        path = packed(path) if packed(path).exists() else path
    try:
        content = read_bytes(path)
        return path, gzip.decompress(content) if content.startswith(_GZIP) else content
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise RecordingError(
            f"no recording can be read at {path} ({reason}); give the folder that a run wrote"
        ) from error
