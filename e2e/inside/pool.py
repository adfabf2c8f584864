"""The pool: a mapped region that holds objects, and an index that scheduler and worker processes share.

The region is a file in shared memory, a file on disk or a DAX device; bytes are reserved front to back and given back
all at once by ``clear``. The index is an SQLite file beside it: crash-safe, shared by processes, readable by anyone.
An object exists when its row does, and its row is written after its bytes; ``read`` proves the bytes by a checksum.
"""

from __future__ import annotations

import json
import mmap
import os
import sqlite3
import stat
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
import xxhash

_SCHEMA = """
CREATE TABLE IF NOT EXISTS objects (name TEXT PRIMARY KEY, start INTEGER, size INTEGER, checksum TEXT);
CREATE TABLE IF NOT EXISTS state (name TEXT PRIMARY KEY, value INTEGER);
CREATE TABLE IF NOT EXISTS counters (
    name TEXT, storage_format TEXT, placement TEXT, value INTEGER, PRIMARY KEY (name, storage_format, placement));
CREATE TABLE IF NOT EXISTS loads (id INTEGER PRIMARY KEY AUTOINCREMENT, row TEXT);
INSERT OR IGNORE INTO state VALUES ('used', 0), ('generation', 0);
"""


class PoolError(Exception):
    """The pool can't be opened: one sentence with cause and cure."""


@dataclass(frozen=True)
class Reservation:
    """``start`` and ``size`` in bytes; ``generation`` tells whether the pool was cleared since."""

    start: int
    size: int
    generation: int


class Pool:
    """One process's handle. Safe to use from several threads."""

    def __init__(self, folder: str, path: str, size: int) -> None:
        """Opens or makes the region of ``size`` bytes at ``path`` and the index in ``folder``.

        Raises PoolError when there is no room, or the region can't be mapped.
        """
        Path(folder).mkdir(parents=True, exist_ok=True)
        self.size = size
        self._region = _map(path, size)
        self._bytes = torch.frombuffer(self._region, dtype=torch.uint8)
        self._lock = threading.Lock()
        try:
            self._index = sqlite3.connect(
                f"{folder}/index.sqlite", timeout=10, isolation_level=None, check_same_thread=False
            )
            self._index.execute("PRAGMA journal_mode=WAL")
            self._index.execute("PRAGMA synchronous=OFF")  # the pool need not outlive a power cut
            self._index.executescript(_SCHEMA)
        except sqlite3.Error as error:
            raise PoolError(f"The pool's index in {folder} can't be opened ({error}); name another folder.") from None

    def reserve(self, size: int) -> Reservation | None:
        """Room for ``size`` bytes, or None when the pool is full."""
        start, generation = self._reserve(-(-size // 64) * 64)
        return None if start is None else Reservation(start, size, generation)

    def _reserve(self, size: int) -> tuple[int | None, int]:
        with self._lock:
            row = self._index.execute(
                "UPDATE state SET value = value + ? WHERE name = 'used' AND value + ? <= ? RETURNING value - ?",
                (size, size, self.size, size),
            ).fetchone()
            generation = self._state("generation")
        return (row[0] if row else None), generation

    def view(self, room: Reservation) -> torch.Tensor:
        """uint8 tensor over the reserved bytes: a view of the mapped region, no copy."""
        return self._bytes[room.start : room.start + room.size]

    def commit(self, rooms: Iterable[tuple[str, Reservation]]) -> None:
        """Registers objects whose bytes are written. Rooms from before a ``clear`` are dropped."""
        rows = [
            (name, room.start, room.size, _checksum(self.view(room)), room.generation) for name, room in rooms
        ]  # hashed outside the lock
        with self._lock, self._index:
            self._index.execute("BEGIN IMMEDIATE")
            generation = self._state("generation")
            self._index.executemany(
                "INSERT OR REPLACE INTO objects VALUES (?, ?, ?, ?)",
                [row[:4] for row in rows if row[4] == generation],
            )

    def has(self, names: Sequence[str]) -> int:
        """How many of ``names``, counted from the first, are there without a gap."""
        with self._lock:
            for count, name in enumerate(names):
                if self._index.execute("SELECT 1 FROM objects WHERE name = ?", (name,)).fetchone() is None:
                    return count
        return len(names)

    def read(self, name: str, out: torch.Tensor) -> bool:
        """Copies an object into ``out`` (uint8, contiguous, of its size). False if it is gone, of another size, or its
        bytes don't match the checksum; the checksum is taken of the copy, so a torn read is seen too."""
        with self._lock:
            row = self._index.execute("SELECT start, size, checksum FROM objects WHERE name = ?", (name,)).fetchone()
        if row is None or row[1] != out.numel():
            return False
        out.copy_(self._bytes[row[0] : row[0] + row[1]])
        return _checksum(out) == row[2]

    def forget(self, names: Iterable[str]) -> None:
        with self._lock:
            self._index.executemany("DELETE FROM objects WHERE name = ?", [(name,) for name in names])

    def clear(self) -> None:
        """Forgets every object and gives all room back. Loads under way notice by the checksum."""
        with self._lock, self._index:
            self._index.execute("BEGIN IMMEDIATE")
            self._index.execute("DELETE FROM objects")
            self._index.execute("UPDATE state SET value = 0 WHERE name = 'used'")
            self._index.execute("UPDATE state SET value = value + 1 WHERE name = 'generation'")

    def count(self, values: Mapping[str, int], *, storage_format: str, placement: str) -> None:
        """Adds to the counters; zero values are skipped."""
        rows = [(name, storage_format, placement, value) for name, value in values.items() if value]
        with self._lock, self._index:
            self._index.execute("BEGIN IMMEDIATE")
            self._index.executemany(
                "INSERT INTO counters VALUES (?, ?, ?, ?) ON CONFLICT DO UPDATE SET value = value + excluded.value",
                rows,
            )

    def counters(self) -> dict[str, int]:
        """``name`` -> total, and ``name/storage_format/placement`` -> value."""
        with self._lock:
            rows = self._index.execute("SELECT name, storage_format, placement, value FROM counters").fetchall()
        totals: dict[str, int] = {}
        for name, storage_format, placement, value in rows:
            totals[name] = totals.get(name, 0) + value
            totals[f"{name}/{storage_format}/{placement}"] = value
        return totals

    def journal_load(self, row: Mapping[str, object]) -> None:
        with self._lock:
            self._index.execute("INSERT INTO loads (row) VALUES (?)", (json.dumps(dict(row)),))

    def loads(self, after: int = 0) -> list[dict[str, object]]:
        """Journaled loads with ``id`` above ``after``, oldest first."""
        with self._lock:
            rows = self._index.execute("SELECT id, row FROM loads WHERE id > ? ORDER BY id", (after,)).fetchall()
        return [{"id": row_id, **json.loads(row)} for row_id, row in rows]

    def _state(self, name: str) -> int:
        return self._index.execute("SELECT value FROM state WHERE name = ?", (name,)).fetchone()[0]


def _checksum(data: torch.Tensor) -> str:
    return xxhash.xxh3_128_hexdigest(data.numpy())


def _map(path: str, size: int) -> mmap.mmap:
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise PoolError(f"The pool {path} can't be opened ({error.strerror}); name another place.") from None
    try:
        if stat.S_ISREG(os.fstat(handle).st_mode) and os.fstat(handle).st_size < size:
            os.posix_fallocate(
                handle, 0, size
            )  # else a full file system would be met as SIGBUS in the middle of a store
        return mmap.mmap(handle, size)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise PoolError(
            f"No room for a pool of {size >> 20} MiB at {path} ({reason}); free space there, or set a smaller "
            "maru_pool_size."
        ) from None
    finally:
        os.close(handle)
