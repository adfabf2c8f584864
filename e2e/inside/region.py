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
    """``align``: a region's size is a multiple of it, and where it begins. ``most``: bytes that there are, None where a
    file grows. ``device``: nothing but a shared mapping reads or writes it."""

    name: str
    align: int = 1
    most: int | None = None

    @property
    def device(self) -> bool:
        return self.most is not None


class Region(mmap.mmap):
    """``refused``: why nothing is to be flushed to what it is a mapping of, empty where it may be."""

    refused: str = ""

    def flush(self, *where: int) -> None:
        if self.refused:
            raise PoolError(self.refused)
        super().flush(*where)


def region(
    path: str, size: int, *, offset: int = 0, flags: int = mmap.MAP_SHARED, numa: int | None = None
) -> Region:  # fmt: skip
    """``size`` bytes from ``offset`` on of what lies at ``path``; a file is made, and made as long as that. ``flags``:
    mmap's. ``numa``: the node whose memory they are to lie in, whoever touches them first. Raises PoolError."""
    handle = _open(path)
    try:
        kind = _kind(path, handle)
        _check(path, kind, size, offset, flags)
        mapped = _mapped(path, handle, size, offset, flags, grows=not kind.device)
    finally:
        os.close(handle)
    if kind.device:
        mapped.refused = (
            f"The pool {path} is {kind.name}, which has no msync: what is written is in its memory when it leaves the "
            "cache; set embedded_pool_flush."
        )
    if numa is not None:
        _bind(mapped, numa)
    return mapped


def _check(path: str, kind: Kind, size: int, offset: int, flags: int) -> None:
    begins = max(kind.align, mmap.ALLOCATIONGRANULARITY)
    for what, setting, value, align in (
        ("sizes", "maru_pool_size", size, kind.align),
        ("beginnings", "embedded_pool_offset", offset, begins),
    ):
        if value % align:
            raise PoolError(
                f"The pool {path} is {kind.name}, whose {what} are multiples of {align >> 10} KiB, and {setting} is "
                f"{value} bytes; round it."
            )
    if kind.most is not None and offset + size > kind.most:
        begin = f" from {offset >> 20} on" if offset else ""
        raise PoolError(
            f"The pool {path} is {kind.name} of {kind.most >> 20} MiB, and maru_pool_size asks for {size >> 20}{begin}"
            "; set a smaller one."
        )
    if kind.device and flags & mmap.MAP_PRIVATE:
        raise PoolError(f"The pool {path} is {kind.name}, which is mapped shared or not at all; use MAP_SHARED.")


def _open(path: str) -> int:
    folder = Path(path).parent
    if folder == Path("/dev") and not Path(path).exists():  # a file there would be memory, but nobody's pool
        raise PoolError(f"There is no device {path}; daxctl list shows what this host has, or name a file.")
    try:
        folder.mkdir(parents=True, exist_ok=True)
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


def _mapped(path: str, handle: int, size: int, offset: int, flags: int, *, grows: bool) -> Region:
    try:
        if grows and os.fstat(handle).st_size < offset + size:
            # else a full file system would be met as SIGBUS in the middle of a store
            os.posix_fallocate(handle, 0, offset + size)
        return Region(handle, size, flags=flags, offset=offset)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise PoolError(
            f"No room for a pool of {size >> 20} MiB at {path} ({reason}); free space there, or set a smaller "
            "maru_pool_size."
        ) from None


def _bind(mapped: Region, node: int) -> None:
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
