"""The run as a whole, in its folder: the recordings of its shares, and the one that they make together."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Sequence
from pathlib import Path

from e2e.base.errors import UsageError
from e2e.fleet.share import Need, Share
from e2e.recording import gather
from e2e.run import report
from e2e.settings.settings import FREE_OF_SHARDS, RECORDING, Settings
from e2e.standing import REPORT_SHARE

#: Folder of single shares, in the run's.
SHARES = "shares"


class Whole:
    """As a context manager it keeps a second driver out. The one recording is written anew as long as that takes no
    more than a small part of the time, and at the end, so that a run that is killed can be judged and continued."""

    def __init__(self, settings: Settings) -> None:
        self._settings, self.shares = settings, list[Share]()
        self._written_s, self._cost_s = time.monotonic(), 0.0

    @property
    def recording(self) -> Path:
        return self._settings.recording

    def __enter__(self) -> Whole:
        folder = self._settings.out / SHARES
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._lock = os.open(folder, os.O_RDONLY)
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise UsageError(
                f"another run is writing {self._settings.out}; wait for it or choose another --out"
            ) from error
        except OSError as error:
            raise UsageError(f"{folder} can't be written ({error.strerror}); choose another --out") from error
        return self

    def __exit__(self, *exc: object) -> None:
        os.close(self._lock)

    def add(self, place: tuple[int, int], key: str, cells: Sequence[str], need: Need) -> Share:
        folder = self._settings.out / SHARES / f"{place[0]}-of-{place[1]}"
        self.shares.append(Share(place, key, cells, need, folder))
        return self.shares[-1]

    def grew(self) -> None:
        """Something was recorded."""
        if self._cost_s <= REPORT_SHARE * (time.monotonic() - self._written_s):
            self.write()

    def write(self) -> bool:
        """Is there anything yet?"""
        began_s = time.monotonic()
        told = [(share.folder, share.events()) for share in self.shares]
        begun = [gather.Share(folder, events) for folder, events in told if any(e.kind == "run.begin" for e in events)]
        if begun:
            new = self._settings.out / f"{RECORDING}.new"
            new.unlink(missing_ok=True)
            gather.write(new, gather.gathered(begun, free=FREE_OF_SHARDS))
            new.replace(self.recording)
        self._written_s = time.monotonic()
        self._cost_s = self._written_s - began_s
        return bool(begun)

    def report(self) -> int:
        """Raises UsageError where nothing was recorded."""
        if not self.write():
            raise UsageError(f"nothing was recorded in {self._settings.out}; see what the nodes said.")
        return report(self._settings.out, strict=self._settings.strict)
