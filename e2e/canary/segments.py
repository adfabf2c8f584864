"""The recording of a canary: folders of one run each, which rotate within a bound on disk.

Each is whole in itself: ``maru-e2e judge FOLDER`` judges it. What a probe found corrupt is kept longest.
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import datetime, timezone
from pathlib import Path

from e2e.base.errors import RecordingError
from e2e.base.event import SCHEMA, Event
from e2e.recording.journal import Journal, read

RECORDING, CORRUPT = "recording.jsonl", "corrupt"
#: What every probe of a segment is judged with.
OF_ALL = ("run.begin", "engine.start", "engine.config")


class Segments:
    """``begin``: what stands first in each, beside its name: values of ``run.begin``. ``keeps``: bytes of all together;
    a segment ends at an eighth of that. Raises as ``Journal`` does."""

    def __init__(
        self, root: Path, *, keeps: int, begin: Callable[[], dict[str, object]], secrets: frozenset[str] = frozenset()
    ) -> None:
        self.root, self.keeps = root, keeps
        self._begin, self._secrets = begin, secrets
        self._journal: Journal | None = None
        self._lock: Journal | None = Journal(root / "canary.lock")  # one canary a folder
        self.events: list[Event] = []
        self.name = ""

    def record(self, kind: str, **data: object) -> Event:
        if self._journal is None:
            self.turn()
        event = self._journal.record(kind, **data)
        self.events.append(event)
        return event

    def forget(self) -> None:
        """Drops the events of earlier probes from memory, not from disk."""
        self.events = [event for event in self.events if event.kind in OF_ALL]

    @property
    def full(self) -> bool:
        return self._journal is not None and self._journal.path.stat().st_size >= self.keeps // 8

    def turn(self) -> None:
        """Ends this segment and begins the next one."""
        self.end()
        self.name = f"{datetime.now(timezone.utc):%Y%m%dT%H%M%SZ}-{uuid.uuid4().hex[:6]}"
        self._journal = Journal(self.root / self.name / RECORDING, secrets=self._secrets)
        self.record("run.begin", run_id=self.name, attempt=1, schema=SCHEMA, **self._begin())
        self.prune()

    def mark(self) -> None:
        """This one holds a finding."""
        (self.root / self.name / CORRUPT).touch()

    def end(self) -> None:
        if self._journal is not None:
            self._journal.record("run.end", attempt=1)
            self._journal.close()
        self._journal, self.events = None, []

    def close(self) -> None:
        with suppress(Exception):  # what a full disk keeps from being written is no reason to hold the lock
            self.end()
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def prune(self) -> None:
        """Oldest first, those with a finding last; never the one that is written."""
        kept = [folder for folder in self.folders() if folder.name != self.name]
        kept.sort(key=lambda folder: ((folder / CORRUPT).exists(), folder.name))
        room = self.keeps - self.keeps // 8
        while kept and sum(map(_bytes, kept)) > room:
            shutil.rmtree(kept.pop(0), ignore_errors=True)

    def folders(self) -> list[Path]:
        """In the order of time."""
        return sorted(path.parent for path in self.root.glob(f"*/{RECORDING}"))

    def before(self) -> Iterator[tuple[Path, list[Event]]]:
        """What earlier canaries recorded; what can't be read is passed over."""
        for folder in self.folders():
            with suppress(RecordingError):
                yield folder, read(folder / RECORDING)


def _bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
