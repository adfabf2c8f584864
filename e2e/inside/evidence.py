"""What one engine's connector counts and journals: an SQLite file that its scheduler and workers share.

Not in the index: whoever asks what an engine saw of a dead index must get an answer, and only that engine's.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import sqlite3
import threading
from collections.abc import Mapping
from pathlib import Path

_SCHEMA = """
CREATE TABLE IF NOT EXISTS counters (
    rank INTEGER, name TEXT, storage_format TEXT, placement TEXT, value INTEGER,
    PRIMARY KEY (rank, name, storage_format, placement));
CREATE TABLE IF NOT EXISTS loads (id INTEGER PRIMARY KEY AUTOINCREMENT, rank INTEGER, row TEXT);
"""


#: Work that takes time -> (counter of its begins, counters of its ends).
WORK = {
    "load": ("loads_begun", ("loads", "load_failures")),
    "store": ("stores_begun", ("stored_chunks", "store_failures")),
}
#: The scheduler's, which counts for all ranks.
OF_ALL = -1


class EvidenceError(Exception):
    """One sentence with cause and cure."""


class Evidence:
    """One process's handle, which sees what it counts itself and what the scheduler does. Safe to use from several
    threads."""

    def __init__(self, folder: str, engine: str, rank: int = OF_ALL) -> None:
        """``engine``: the same in all processes of one engine. ``rank``: of a worker. Raises EvidenceError."""
        self._lock, self._rank = threading.Lock(), rank
        try:
            Path(folder).mkdir(parents=True, exist_ok=True)
            path = Path(folder) / f"evidence-{engine}.sqlite"
            self._file = sqlite3.connect(path, timeout=10, isolation_level=None, check_same_thread=False)
            self._file.execute("PRAGMA synchronous=OFF")  # it need not outlive a power cut
            # ranks start at once, and SQLite waits for nobody while one of them turns WAL on
            with path.with_suffix(".lock").open("w") as alone:
                fcntl.flock(alone, fcntl.LOCK_EX)
                self._file.execute("PRAGMA journal_mode=WAL")
                self._file.executescript(_SCHEMA)
        except (OSError, sqlite3.Error) as error:
            raise EvidenceError(f"No evidence can be kept in {folder} ({error}); name another folder.") from None

    def count(self, values: Mapping[str, int], *, storage_format: str = "", placement: str = "") -> None:
        """Adds to the counters; zero values are skipped."""
        rows = [(self._rank, name, storage_format, placement, value) for name, value in values.items() if value]
        if not rows:
            return
        with self._lock, self._file:
            self._file.execute("BEGIN IMMEDIATE")
            self._file.executemany(
                "INSERT INTO counters VALUES (?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET value = value + excluded.value",
                rows,
            )

    def counters(self) -> dict[str, int]:
        """``name`` -> total, and ``name/storage_format/placement`` -> value."""
        with self._lock:
            rows = self._file.execute(
                "SELECT name, storage_format, placement, SUM(value) FROM counters WHERE rank IN (?, ?) "
                "GROUP BY name, storage_format, placement",
                (OF_ALL, self._rank),
            ).fetchall()
        totals: dict[str, int] = {}
        for name, storage_format, placement, value in rows:
            totals[name] = totals.get(name, 0) + value
            totals[f"{name}/{storage_format}/{placement}"] = value
        return totals

    def journal_load(self, row: Mapping[str, object]) -> None:
        with self._lock:
            self._file.execute("INSERT INTO loads (rank, row) VALUES (?, ?)", (self._rank, json.dumps(dict(row))))

    def loads(self, after: int = 0) -> list[dict[str, object]]:
        """Journaled loads with ``id`` above ``after``, oldest first."""
        with self._lock:
            rows = self._file.execute(
                "SELECT id, row FROM loads WHERE id > ? AND rank = ? ORDER BY id", (after, self._rank)
            ).fetchall()
        return [{"id": row_id, **json.loads(row)} for row_id, row in rows]

    def under_way(self) -> dict[str, int]:
        """Kind of ``WORK`` -> how much of it this engine has begun and not ended, on all of its ranks."""
        with self._lock:
            return _under_way(self._file)


def under_way(folder: Path, engine: str) -> dict[str, int]:
    """Kind of ``WORK`` -> how much of it an engine has begun and not ended, also one that is no more; nothing of one
    that kept no evidence. ``engine``: as in ``Evidence``."""
    path = folder / f"evidence-{engine}.sqlite"
    if not path.exists():
        return {}
    with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=10)) as file:
        return _under_way(file)


def _under_way(file: sqlite3.Connection) -> dict[str, int]:
    told = dict(file.execute("SELECT name, SUM(value) FROM counters GROUP BY name").fetchall())
    return {work: told.get(begun, 0) - sum(told.get(end, 0) for end in ends) for work, (begun, ends) in WORK.items()}
