"""A living run's register: what it starts and makes is on disk before it exists, so that a reaper can end it."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import threading
from pathlib import Path

from e2e.base.errors import UsageError
from e2e.stack import turns
from e2e.stack.confided import hide, told
from e2e.stack.owned import ENGINE_MARK, MARK, OWNER_FILE, PREFIX, RunFile, here, marked, stamp
from e2e.stack.reaper import kill, reap_file

_RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,39}")
_WATCHDOG_LIMIT_S = 10.0


class Ledger:
    """As a context manager it leaves nothing behind: what still runs at the end is killed, what it made is removed.
    Several threads may share it."""

    def __init__(self, *, run_id: str, state_dir: Path, alone: bool = False) -> None:
        """``alone``: no other run has engines on this machine meanwhile. Raises UsageError when the id can't name a
        file, a living run has it, the state folder can't be made, or other runs don't make room in time."""
        if not _RUN_ID.fullmatch(run_id):
            raise UsageError(f"run id {run_id!r} is no name of up to 40 letters, digits, '_', '.' or '-'.")
        self.run_id = run_id
        self.path = state_dir / f"{run_id}.json"
        try:
            state_dir.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(
                f"state folder {state_dir} can't be made: {error.strerror}; set XDG_STATE_HOME."
            ) from error
        if (other := RunFile.read(self.path)) and not other.orphaned():
            raise UsageError(f"run {run_id} is already going on as process {other.owner['pid']}; end it first.")
        self._turn: int | None = turns.take(state_dir, alone=alone)
        self._lock = threading.Lock()
        self._secrets: frozenset[str] = frozenset()
        self._file = RunFile(run_id=run_id, where=here(), owner=stamp(os.getpid()))
        self._file.write(self.path)
        self._watchdog = _start_watchdog(self.path)

    def marks(self, engine: str) -> dict[str, str]:
        """Environment that proves whose a process is. SPT_NOENV: vLLM's process titles may not overwrite it."""
        return {MARK: self.run_id, ENGINE_MARK: engine, "SPT_NOENV": "1"}

    def own_shared_memory(self, paths: set[str]) -> None:
        """Segments seen open in our processes: once those are dead, nothing else tells them from strangers'."""
        with self._lock:
            if new := sorted(paths - set(self._file.shared_memory)):
                self._file.shared_memory += new
                self._file.write(self.path)

    def own_containers(self) -> None:
        """From now on this run may have containers: they are looked for at its end, however it ends."""
        with self._lock:
            if not self._file.containers:
                self._file.containers = True
                self._file.write(self.path)

    def confide(self, logs: Path, secrets: frozenset[str]) -> None:
        """From now on an engine's logs (``folder/engine``) may hold ``secrets``: whoever cleans up after us takes them
        out. They are told to the watchdog, and written nowhere."""
        logs = logs.absolute()
        with self._lock:
            self._secrets |= secrets
            if self._secrets and str(logs) not in self._file.logs:
                self._file.logs.append(str(logs))
                self._file.write(self.path)
                with contextlib.suppress(OSError):  # it is dead: the next start takes the logs away
                    self._watchdog.stdin.write(told(self._secrets))
                    self._watchdog.stdin.flush()

    def hide(self, logs: Path) -> None:
        """The engine has ended: its logs lose what it was told in confidence."""
        logs = logs.absolute()
        hide(logs.parent, logs.name, self._secrets)
        with self._lock:
            if str(logs) in self._file.logs:
                self._file.logs.remove(str(logs))
                self._file.write(self.path)

    def folder(self, parent: Path, name: str) -> Path:
        """A new empty folder ``parent/maru-e2e-<run id>/name``, removed with all in it when the run ends or dies.

        Raises UsageError when it can't be made.
        """
        root = parent.resolve() / f"{PREFIX}{self.run_id}"
        made = root / name
        try:
            with self._lock:
                if str(root) not in self._file.folders:
                    self._file.folders.append(str(root))
                    self._file.write(self.path)
                    root.mkdir(mode=0o700)
                    (root / OWNER_FILE).write_text(self.run_id)
            made.mkdir(parents=True)
        except OSError as error:
            raise UsageError(f"folder {made} can't be made: {error.strerror}; name another place for it.") from error
        return made

    def kill(self) -> None:
        """All processes that this run has now."""
        kill(list(marked(MARK, self.run_id)))

    def close(self) -> None:
        """Kills and removes what is left, then forgets the run."""
        reap_file(self._file, self.path, secrets=self._secrets)
        self._watchdog.stdin.close()
        if self.path.exists():  # what could not be removed now is left to the next start
            self._watchdog.kill()
        try:
            self._watchdog.wait(timeout=_WATCHDOG_LIMIT_S)
        except subprocess.TimeoutExpired:
            self._watchdog.kill()
        if self._turn is not None:
            os.close(self._turn)
            self._turn = None

    def __enter__(self) -> Ledger:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def _start_watchdog(path: Path) -> subprocess.Popen:
    """A process in a session of its own that holds a pipe to us and reaps when we die (watchdog.py)."""
    package_root = str(Path(__file__).resolve().parents[2])
    env = {key: value for key, value in os.environ.items() if key not in (MARK, ENGINE_MARK)}
    env["PYTHONPATH"] = os.pathsep.join(filter(None, (package_root, env.get("PYTHONPATH"))))
    return subprocess.Popen(
        [sys.executable, "-m", "e2e.stack.watchdog", str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd="/",
        env=env,
        start_new_session=True,
    )
