"""What stands on a node of the cluster: one share of a run, as a process of its own, and what it has recorded so far.

The process has a reaper that outlives whoever started it (``stack.ledger``), and so have the engines that it starts.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from e2e.recording.reader import whole_bytes
from e2e.settings.settings import RECORDING
from e2e.settings.world import environment, state_dir
from e2e.stack.child import Child, spawn
from e2e.stack.ledger import Ledger
from e2e.waits import until

_ROOT = Path(__file__).resolve().parents[2]
#: How long one asking may take when there is nothing new, and a run that is told to stop. Seconds.
LISTEN_S, STOP_LIMIT_S = 1.0, 60.0
#: Bytes that are kept of each log.
LOG_BYTES = 16 << 20


@dataclass(frozen=True)
class Told:
    """``recorded``, ``said``: whole lines behind those that were told before, of the recording and of the progress.
    ``code``: the exit code, None while it runs. ``lost``: why nothing more will be told, else empty."""

    recorded: bytes = b""
    said: bytes = b""
    code: int | None = None
    lost: str = ""


@dataclass(frozen=True)
class Task:
    """What all shares of a run have in common. ``settings``: as recorded. ``environ``: variables of the driver that
    engines are to see. ``folder``: the driver's, where files that the command line names lie; used where it is on the
    node, too. ``program``: what the node's Python runs, with the run's folder and the share's place behind it."""

    settings: Mapping[str, object]
    environ: Mapping[str, str]
    folder: str
    program: tuple[str, ...] = ("-m", "maru_e2e", "share")


class Node:
    """``share``: number, and of how many. ``recording``: what an earlier task recorded of it, which this one goes on
    with."""

    def __init__(self, task: Task, share: tuple[int, int], recording: bytes) -> None:
        run_id = f"share-{uuid.uuid4().hex[:12]}"
        self._ledger = Ledger(run_id=run_id, state_dir=state_dir())
        self._out = self._ledger.folder(Path(tempfile.gettempdir()), "run")
        self._said = self._out.with_name("said.txt")
        about = {**task.settings, "out": str(self._out), "resume": bool(recording)}
        self._out.with_name("settings.json").write_text(json.dumps(about))
        if recording:
            (self._out / RECORDING).write_bytes(recording)
        argv = [sys.executable, *task.program, str(self._out), *map(str, share)]
        handle = spawn(
            "the rig", argv, env={**_inherited(), **task.environ, **self._ledger.marks("share")}, log_path=self._said,
            cwd=Path(task.folder) if Path(task.folder).is_dir() else self._out,
        )  # fmt: skip
        self._child = Child(handle, "share", run_id)

    def told(self, recorded: int, said: int) -> Told:
        """What is new behind so many bytes of each, or after a while nothing."""
        files = ((self._out / RECORDING, recorded), (self._said, said))
        until(
            lambda: not self._child.alive() or any(_size(path) > known for path, known in files), bool,
            limit_s=LISTEN_S, every_s=0.1,
        )  # fmt: skip
        code = self._child.handle.poll()  # first: what is read after it is all
        return Told(*(_lines(path, known) for path, known in files), code)

    def stop(self) -> None:
        """As ^C does: what was seen is judged, and its engines are ended."""
        self._child.end(signal.SIGINT, limit_s=STOP_LIMIT_S)

    def logs(self) -> dict[str, bytes]:
        """Their names in the run's folder, and how each ends."""
        return {str(path.relative_to(self._out)): _end(path) for path in sorted(self._out.glob("logs/**/*.log"))}

    def close(self) -> None:
        """Nothing of it is left here."""
        self._child.kill()
        self._ledger.close()


def _inherited() -> dict[str, str]:
    """Without what Ray sets for code of its own, which would slow an engine down."""
    inherited = {name: value for name, value in environment().items() if name != "OMP_NUM_THREADS"}
    return {**inherited, "PYTHONPATH": os.pathsep.join(filter(None, (str(_ROOT), inherited.get("PYTHONPATH"))))}


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _lines(path: Path, since: int) -> bytes:
    if not path.exists():
        return b""
    with path.open("rb") as file:
        file.seek(since)
        content = file.read()
    return content[: whole_bytes(content)]


def _end(path: Path) -> bytes:
    with path.open("rb") as file:
        file.seek(max(path.stat().st_size - LOG_BYTES, 0))
        return file.read()
