"""Ends what a dead run left behind, and nothing else.

Called at every start over the state folder, by a run at its own end, and by its watchdog (watchdog.py) when it died.
Safe to run twice at once: whatever is gone already is fine.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from e2e.base.errors import SettingsError
from e2e.stack.confided import hide, withdraw
from e2e.stack.owned import MARK, RunFile, folder_is_ours, marked

#: How long a killed process may take to vanish; unmapping gigabytes needs some of it. Seconds.
KILL_LIMIT_S = 10.0
#: Where Python's shared memory and semaphores are, and that of vLLM's ranks on a CPU, and how they are called; nothing
#: else there is ever touched.
SHARED = Path("/dev/shm")
SHARED_NAMES = ("psm_", "sem.mp-", "vllm_dist_")


@dataclass
class Reaped:
    """What one dead run had left. ``survivors``: processes that could not be killed. ``unasked``: it may have
    containers, and no Docker engine answered."""

    run_id: str
    processes: list[int] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    survivors: list[int] = field(default_factory=list)
    containers: list[str] = field(default_factory=list)
    unasked: bool = False

    def __bool__(self) -> bool:
        return bool(self.processes or self.paths or self.survivors or self.containers)


def reap(*, state_dir: Path) -> list[Reaped]:
    """Reaps every run in the folder whose owner is dead; returns those that had left something."""
    found = []
    for path in sorted(state_dir.glob("*.json")):
        run = RunFile.read(path)
        if run is not None and run.orphaned():
            found.append(reap_file(run, path))
    return [reaped for reaped in found if reaped]


def reap_file(run: RunFile, path: Path, *, secrets: Collection[str] | None = None) -> Reaped:
    """Reaps one run and forgets it, unless something survived: then the next start tries again. ``secrets``: what its
    engines were told in confidence, None where nobody knows."""
    reaped = reap_run(run, secrets=secrets)
    if not reaped.survivors and not reaped.unasked:
        path.unlink(missing_ok=True)
        path.with_suffix(".new").unlink(missing_ok=True)
    return reaped


def reap_run(run: RunFile, *, secrets: Collection[str] | None = None) -> Reaped:
    """Removes the run's containers, kills its processes, cleans their logs of ``secrets``, then removes its folders and
    shared-memory segments."""
    reaped = Reaped(run.run_id)
    if run.containers:
        _reap_containers(reaped)
    segments = set(run.shared_memory)
    for _ in range(3):  # one that is just being forked shows in the next round
        ours = list(marked(MARK, run.run_id))
        if not ours:
            break
        segments |= shared_memory_of(ours)
        gone, left = kill(ours)
        reaped.processes += [process.pid for process in gone]
        reaped.survivors = [process.pid for process in left]
    for log in map(Path, run.logs):
        withdraw(log.parent, log.name) if secrets is None else hide(log.parent, log.name, secrets)
    for name in run.folders:
        if folder_is_ours(Path(name), run.run_id):
            shutil.rmtree(name, ignore_errors=True)
            reaped.paths.append(name)
    reaped.paths += remove_segments(segments)
    return reaped


def _reap_containers(reaped: Reaped) -> None:
    from e2e.stack.containers import DOCKER_ERRORS, connect, remove_of  # half a second that most runs need not spend

    try:
        client = connect()
        reaped.containers = remove_of(client, reaped.run_id)
        client.close()
    except (SettingsError, *DOCKER_ERRORS):
        reaped.unasked = True


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


def segments() -> dict[int, Path]:
    """Shared memory and semaphores of an engine's kind by inode; empty where there is no such folder."""
    with contextlib.suppress(OSError):
        return {path.stat().st_ino: path for path in SHARED.iterdir() if path.name.startswith(SHARED_NAMES)}
    return {}


def shared_memory_of(processes: Iterable[psutil.Process]) -> set[str]:
    """Those that these processes have mapped. By inode, since glibc maps a semaphore before it gives it its name."""
    by_inode, held = segments(), set()
    for process in processes if by_inode else ():
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/{process.pid}/maps").read_text(errors="replace").splitlines():
                fields = line.split(maxsplit=5)
                if len(fields) == 6 and fields[5].startswith(f"{SHARED}/") and int(fields[4]) in by_inode:
                    held.add(str(by_inode[int(fields[4])]))
    return held


def remove_segments(paths: Iterable[str]) -> list[str]:
    """Removes those of ``paths`` that are still there and that no living process has mapped."""
    wanted = {str(path) for path in segments().values()}.intersection(paths)
    removable = sorted(wanted - shared_memory_of(psutil.process_iter())) if wanted else []
    for path in removable:
        Path(path).unlink(missing_ok=True)
    return removable
