"""Logs of engines that were told something in confidence: they lose it when the engine has ended, however the run ends.

The secrets are never on a disk: the run and its watchdog know them. Where both are dead, the logs are taken away whole.
"""

from __future__ import annotations

import contextlib
import glob
import json
from collections.abc import Collection
from pathlib import Path

from e2e.base import redact

WITHDRAWN = "The run and its watchdog were killed: nobody knows what this log must not hold, so it is gone.\n"


def hide(folder: Path, engine: str, secrets: Collection[str]) -> None:
    """Takes ``secrets`` out of what an engine that has ended, and the servers beside it, wrote into their logs."""
    for path in _logs(folder, engine):
        with contextlib.suppress(OSError):
            said = path.read_bytes().decode("utf-8", "surrogateescape")
            clean = redact.without(said, secrets)
            if clean != said:
                path.write_bytes(clean.encode("utf-8", "surrogateescape"))


def withdraw(folder: Path, engine: str) -> None:
    """Where the secrets are not known."""
    for path in _logs(folder, engine):
        with contextlib.suppress(OSError):
            path.write_text(WITHDRAWN)


def _logs(folder: Path, engine: str) -> list[Path]:
    return [path for path in folder.glob(f"{glob.escape(engine)}.*log") if path.is_file() and not path.is_symlink()]


def told(secrets: Collection[str]) -> bytes:
    """A message to the watchdog."""
    return json.dumps(sorted(secrets)).encode() + b"\n"


def understood(messages: bytes) -> frozenset[str] | None:
    """The secrets of the last message; None when it was none, or was cut off."""
    if not messages.endswith(b"\n"):
        return None
    return frozenset(json.loads(messages.splitlines()[-1]))
