"""Ends what a dead run left behind, and nothing else.

Called at every start over the state folder, by a run at its own end, and by its watchdog (watchdog.py) when it died.
Safe to run twice at once: whatever is gone already is fine.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from e2e.stack.owned import MARK, RunFile, folder_is_ours, marked

#: How long a killed process may take to vanish; unmapping gigabytes needs some of it. Seconds.
KILL_LIMIT_S = 10.0
#: How Python names shared memory and semaphores; nothing else there is ever touched.
SHARED_MEMORY = ("/dev/shm/psm_", "/dev/shm/sem.mp-")


@dataclass
class Reaped:
    """What one dead run had left. ``survivors``: processes that could not be killed."""

    run_id: str
    processes: list[int] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    survivors: list[int] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.processes or self.paths or self.survivors)


def reap(*, state_dir: Path) -> list[Reaped]:
    """Reaps every run in the folder whose owner is dead; returns those that had left something."""
    found = []
    for path in sorted(state_dir.glob("*.json")):
        run = RunFile.read(path)
        if run is not None and run.orphaned():
            found.append(reap_file(run, path))
    return [reaped for reaped in found if reaped]


def reap_file(run: RunFile, path: Path) -> Reaped:
    """Reaps one run and forgets it, unless something survived: then the next start tries again."""
    reaped = reap_run(run)
    if not reaped.survivors:
        path.unlink(missing_ok=True)
        path.with_suffix(".new").unlink(missing_ok=True)
    return reaped


def reap_run(run: RunFile) -> Reaped:
    """Kills the run's processes, then removes its folders and shared-memory segments."""
    reaped = Reaped(run.run_id)
    segments = set(run.shared_memory)
    for _ in range(3):  # one that is just being forked shows in the next round
        ours = list(marked(MARK, run.run_id))
        if not ours:
            break
        segments |= shared_memory_of(ours)
        gone, left = kill(ours)
        reaped.processes += [process.pid for process in gone]
        reaped.survivors = [process.pid for process in left]
    for name in run.folders:
        if folder_is_ours(Path(name), run.run_id):
            shutil.rmtree(name, ignore_errors=True)
            reaped.paths.append(name)
    reaped.paths += remove_segments(segments)
    return reaped


def kill(processes: Iterable[psutil.Process]) -> tuple[list[psutil.Process], list[psutil.Process]]:
    """SIGKILL to all, then waits; psutil itself refuses when a pid has passed to another process."""
    processes = list(processes)
    for process in processes:
        try:
            process.kill()
        except psutil.Error:
            continue
    gone, left = psutil.wait_procs(processes, timeout=KILL_LIMIT_S)
    zombies = [process for process in left if _is_zombie(process)]
    return gone + zombies, [process for process in left if process not in zombies]


def _is_zombie(process: psutil.Process) -> bool:
    """Dead, but its parent has not asked yet: nothing that we could or should end."""
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.Error:
        return True


def shared_memory_of(processes: Iterable[psutil.Process]) -> set[str]:
    """Python's shared memory and semaphores that these processes have mapped; empty where there is no /proc."""
    held = set()
    for process in processes:
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/{process.pid}/maps").read_text(errors="replace").splitlines():
                path = line.partition("/")[1] + line.partition("/")[2]
                if path.startswith(SHARED_MEMORY):
                    held.add(path)
    return held


def remove_segments(paths: Iterable[str]) -> list[str]:
    """Removes those of ``paths`` that are still there and that no living process holds."""
    wanted = {path for path in paths if path.startswith(SHARED_MEMORY) and Path(path).exists()}
    if not wanted:
        return []
    removable = sorted(wanted - shared_memory_of(psutil.process_iter()))
    for path in removable:
        Path(path).unlink(missing_ok=True)
    return removable
