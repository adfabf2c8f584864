"""How many cores an engine on this machine may compute on: what affinity and the control group leave, one per core."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import psutil

_CPUS = Path("/sys/devices/system/cpu")
_PROC = Path("/proc/self/cgroup")
_CGROUPS = Path("/sys/fs/cgroup")


def usable_cores(*, cpus: Path = _CPUS, proc: Path = _PROC, cgroups: Path = _CGROUPS) -> int:
    """Physical cores among the CPUs that we may run on, or fewer where a quota allows less time; at least 1.

    Two hardware threads of a core share its vector units, so they count once, as vLLM counts them on x86. The
    arguments are places to read from.
    """
    try:
        allowed = os.sched_getaffinity(0)
    except AttributeError:  # not Linux
        return psutil.cpu_count(logical=False) or 1
    count = len({_siblings(cpus, cpu) for cpu in allowed})
    quota = _quota(proc, cgroups)
    return max(min(count, int(quota)) if quota is not None else count, 1)


def _siblings(cpus: Path, cpu: int) -> str:
    """The hardware threads of one core, as Linux lists them; a CPU that tells nothing is a core of its own."""
    try:
        return (cpus / f"cpu{cpu}" / "topology" / "thread_siblings_list").read_text().strip()
    except OSError:
        return str(cpu)


def _quota(proc: Path, cgroups: Path) -> float | None:
    """CPUs' worth of time that the tightest of our control groups (v1 or v2) allows; None: no limit."""
    found: list[float] = []
    with contextlib.suppress(OSError):
        for line in proc.read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            base = cgroups / "cpu" if "cpu" in controllers.split(",") else cgroups
            here = base / path.lstrip("/")
            for folder in (here, *here.parents):
                found += _quota_of(folder)
                if folder == base:
                    break
    return min(found, default=None)


def _quota_of(folder: Path) -> list[float]:
    with contextlib.suppress(OSError, ValueError):
        if (folder / "cpu.max").exists():  # v2: "max 100000" or "150000 100000"
            quota, period = (folder / "cpu.max").read_text().split()
        else:
            quota, period = ((folder / f"cpu.cfs_{name}_us").read_text() for name in ("quota", "period"))
        if float(quota) > 0:  # v1 says -1 for no limit
            return [float(quota) / float(period)]
    return []
