"""Whose is it? Marks in environments and folders, and the file that says what a run owns.

Ownership is proven, never guessed: a process carries the run's id in its environment (``MARK``), a folder is called
``maru-e2e-<run id>`` and holds a file with that id, a shared-memory segment was seen open in a process of ours. A fork
shows the environment of its zygote, so it has the run's mark from its first moment and writes its engine's over it.
"""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

import psutil

from e2e.base.errors import RigError

#: Environment marks of every process that a run starts: the run's id, and the engine's name.
MARK = "MARU_E2E_RUN"
ENGINE_MARK = "MARU_E2E_ENGINE"
PREFIX = "maru-e2e-"
#: In every folder of ours; holds the run's id.
OWNER_FILE = ".maru-e2e-run"
#: Creation times of one process, read by two processes, differ when the clock is set in between. Seconds.
_CLOCK_STEP_S = 2.0


def default_state_dir(environ: Mapping[str, str]) -> Path:
    """``$XDG_STATE_HOME/maru-e2e/runs``, or ``~/.local/state/maru-e2e/runs``."""
    home = environ.get("XDG_STATE_HOME") or Path(environ.get("HOME") or Path.home()) / ".local" / "state"
    return Path(home) / "maru-e2e" / "runs"


def default_data_dir(environ: Mapping[str, str]) -> Path:
    """What outlives runs: ``$XDG_DATA_HOME/maru-e2e``, or ``~/.local/share/maru-e2e``."""
    home = environ.get("XDG_DATA_HOME") or Path(environ.get("HOME") or Path.home()) / ".local" / "share"
    return Path(home) / "maru-e2e"


def here() -> str:
    """Names this machine and process space: a pid means nothing elsewhere (another container, a shared home)."""
    try:
        return f"{platform.node()}/{os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return platform.node()


def stamp(pid: int) -> dict[str, float]:
    """Raises psutil.NoSuchProcess."""
    return {"pid": pid, "created": psutil.Process(pid).create_time()}


def living(stamped: Mapping[str, float]) -> psutil.Process | None:
    """The very process that was stamped, not a later one with its pid."""
    try:
        process = psutil.Process(int(stamped["pid"]))
        same = abs(process.create_time() - stamped["created"]) < _CLOCK_STEP_S
        return process if same and process.status() != psutil.STATUS_ZOMBIE else None
    except psutil.Error:
        return None


def marked(mark: str, value: str) -> Iterator[psutil.Process]:
    """Living processes that carry this mark; those whose environment we may not read are not ours."""
    for process in psutil.process_iter():
        try:
            if process.pid != os.getpid() and process.environ().get(mark) == value:
                yield process
        except (psutil.Error, OSError):
            continue


def folder_is_ours(path: Path, run_id: str) -> bool:
    """A real folder of this user, named after the run and signed with its id, or still empty."""
    try:
        if path.name != f"{PREFIX}{run_id}" or path.is_symlink() or not path.is_dir():
            return False
        if path.stat().st_uid != os.getuid():
            return False
        signature = path / OWNER_FILE
        return signature.read_text() == run_id if signature.exists() else not any(path.iterdir())
    except OSError:
        return False


@dataclass
class RunFile:
    """``owner``: pid and creation time in seconds since the epoch. Processes need no list: each carries the mark.
    Nor do containers, whose labels tell; ``containers`` says whether there may be any. ``logs``: of engines that were
    told something in confidence, as folder/engine."""

    run_id: str
    where: str
    owner: dict[str, float]
    folders: list[str] = field(default_factory=list)
    shared_memory: list[str] = field(default_factory=list)
    containers: bool = False
    logs: list[str] = field(default_factory=list)

    def orphaned(self) -> bool:
        """Its owner is dead, and we are where a pid can tell."""
        return self.where == here() and living(self.owner) is None

    def write(self, path: Path) -> None:
        """Complete or not at all, also when the machine stops. Raises RigError when the disk refuses."""
        new = path.with_suffix(".new")
        try:
            with new.open("w") as file:
                json.dump(asdict(self), file)
                file.flush()
                os.fsync(file.fileno())
            new.replace(path)
        except OSError as error:
            raise RigError(f"the run's state can't be written to {path}: {error.strerror}; make room there.") from error

    @classmethod
    def read(cls, path: Path) -> RunFile | None:
        """None when the file is gone or holds something else."""
        try:
            return cls(**json.loads(path.read_text()))
        except (OSError, ValueError, TypeError):
            return None
