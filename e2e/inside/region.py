"""The region of a pool: bytes that several processes, or hosts, map. Imports no torch, for hosts that have none.

It lies in a file (in shared memory, on a disk, in hugetlbfs, on a DAX file system) or is a DAX device. A device has the
strictest rules (Linux, drivers/dax/device.c): its size stands in sysfs alone, length and offset of a mapping are
multiples of its alignment, a mapping is shared, nothing but a mapping reads or writes it, and a mapping longer than the
device can be had, but its end can't be touched. What is done here is what all of them allow.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import stat
from dataclasses import dataclass
from pathlib import Path

SYSFS = Path("/sys")
MOUNTS = Path("/proc/self/mountinfo")
_MPOL_BIND = 2  # linux/mempolicy.h


class PoolError(Exception):
    """The pool can't be had: one sentence with cause and cure."""


@dataclass(frozen=True)
class Kind:
    """``align``: a region's size is a multiple of it. ``most``: bytes that there are, None where a file grows."""

    name: str
    align: int = 1
    most: int | None = None


def region(path: str, size: int, *, numa: int | None = None) -> mmap.mmap:
    """The first ``size`` bytes of what lies at ``path``, shared; a file is made, and made as long as that. ``numa``:
    the node whose memory they are to lie in, whoever touches them first. Raises PoolError."""
    handle = _open(path)
    try:
        kind = _kind(path, handle)
        if size % kind.align:
            raise PoolError(
                f"The pool {path} is {kind.name}, whose sizes are multiples of {kind.align >> 10} KiB, and "
                f"maru_pool_size is {size} bytes; round it."
            )
        if kind.most is not None and size > kind.most:
            raise PoolError(
                f"The pool {path} is {kind.name} of {kind.most >> 20} MiB, and maru_pool_size asks for {size >> 20}; "
                "set a smaller one."
            )
        mapped = _mapped(path, handle, size, grows=kind.most is None)
    finally:
        os.close(handle)
    if numa is not None:
        _bind(mapped, numa)
    return mapped


def _open(path: str) -> int:
    try:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        return os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise PoolError(f"The pool {path} can't be opened ({error.strerror}); name another place.") from None


def _kind(path: str, handle: int) -> Kind:
    found = os.fstat(handle)
    if stat.S_ISCHR(found.st_mode):
        return _device(path, found.st_rdev)
    if not stat.S_ISREG(found.st_mode):
        raise PoolError(f"The pool {path} is neither a file nor a DAX device; name one.")
    if _file_system(path) == "hugetlbfs":
        return Kind("a file in hugetlbfs", align=os.fstatvfs(handle).f_bsize)
    return Kind("a file")


def _device(path: str, number: int) -> Kind:
    about = SYSFS / "dev" / "char" / f"{os.major(number)}:{os.minor(number)}"
    try:
        size, align = (int((about / name).read_text()) for name in ("size", "align"))
    except (OSError, ValueError):
        raise PoolError(f"The pool {path} is a device, but no DAX device; name one, or a file.") from None
    return Kind("a DAX device", align=align, most=size)


def _file_system(path: str) -> str:
    """Its type, of the mount that ``path`` lies in (man proc_pid_mountinfo)."""
    real = os.path.realpath(path)
    best = (-1, "")
    for line in MOUNTS.read_text().splitlines():
        before, _, after = line.partition(" - ")
        point = before.split()[4].encode().decode("unicode_escape")
        if (real == point or real.startswith(f"{point.rstrip('/')}/")) and len(point) >= best[0]:
            best = (len(point), after.split()[0])
    return best[1]


def _mapped(path: str, handle: int, size: int, *, grows: bool) -> mmap.mmap:
    try:
        if grows and os.fstat(handle).st_size < size:
            # else a full file system would be met as SIGBUS in the middle of a store
            os.posix_fallocate(handle, 0, size)
        return mmap.mmap(handle, size, flags=mmap.MAP_SHARED)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise PoolError(
            f"No room for a pool of {size >> 20} MiB at {path} ({reason}); free space there, or set a smaller "
            "maru_pool_size."
        ) from None


def _bind(mapped: mmap.mmap, node: int) -> None:
    """mbind(2), which counts for pages that nobody has touched. Device DAX has its node from the firmware."""
    try:
        numa = ctypes.CDLL("libnuma.so.1", use_errno=True)
    except OSError:
        raise PoolError("embedded_pool_numa needs libnuma; install libnuma1, or leave it out.") from None
    if node > numa.numa_max_node():
        raise PoolError(f"There is no NUMA node {node} for the pool; give 0 to {numa.numa_max_node()}.")
    nodes = ctypes.c_ulong(1 << node)
    start = ctypes.addressof(ctypes.c_char.from_buffer(mapped))
    room = (ctypes.c_void_p(start), ctypes.c_ulong(len(mapped)))
    if numa.mbind(*room, _MPOL_BIND, ctypes.byref(nodes), ctypes.c_ulong(64), ctypes.c_uint(0)):
        reason = os.strerror(ctypes.get_errno())
        raise PoolError(f"The pool can't be bound to the NUMA node {node} ({reason}); leave out embedded_pool_numa.")
