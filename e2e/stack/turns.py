"""Who may have engines on this machine now: runs share it, and one that times its engines has it to itself.

A lock of the kernel on a file beside the runs' registers, so that no dead run keeps it.
"""

from __future__ import annotations

import fcntl
import os
import platform
from pathlib import Path

from e2e.base.errors import UsageError
from e2e.stack.owned import MARK, RunFile, here, marked
from e2e.waits import Outcome, wait

#: How long a run waits for its turn, in seconds.
LIMIT_S = 600.0


def take(state_dir: Path, *, alone: bool, limit_s: float | None = None) -> int:
    """Waits for a turn, which lasts until the descriptor that is returned is closed. ``alone``: with nobody beside us,
    not even engines that a dead run left. UsageError where the others don't end within the limit."""
    limit_s = LIMIT_S if limit_s is None else limit_s
    held = os.open(state_dir / f"engines-{platform.node()}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        ready = wait(lambda: _locked(held, alone) and not (alone and others(state_dir)), limit_s=limit_s)
        if ready is Outcome.READY:
            return held
        raise _late(others(state_dir), alone, limit_s)
    except BaseException:
        os.close(held)
        raise


def others(state_dir: Path) -> list[RunFile]:
    """Runs of this machine, and dead ones of which something is still to be reaped."""
    found = (RunFile.read(path) for path in state_dir.glob("*.json"))
    runs = [run for run in found if run is not None and run.where == here()]
    return [run for run in runs if not run.orphaned() or any(marked(MARK, run.run_id))]


def _locked(held: int, alone: bool) -> bool:
    try:
        fcntl.flock(held, (fcntl.LOCK_EX if alone else fcntl.LOCK_SH) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _late(runs: list[RunFile], alone: bool, limit_s: float) -> UsageError:
    which = f" (process {int(runs[0].owner['pid'])})" if runs else ""
    if alone:
        what = f"another run of the rig{which} has engines on this machine, so nothing here could be timed"
    else:
        what = f"a run{which} times its engines and has this machine to itself"
    return UsageError(f"{what}; it did not end within {limit_s:g} s, start again once it has.")
