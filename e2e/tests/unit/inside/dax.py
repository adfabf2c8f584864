"""A DAX device for tests: a file in shared memory that keeps a device's rules, so that what fails on one fails here.
They stand in docs/maru.md#a-pool-on-a-device."""

from __future__ import annotations

import errno
import mmap
import os
import stat
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

from e2e.inside import region

ALIGN = 2 << 20
MAJOR, MINOR = 252, 0


class Map(mmap.mmap):
    def flush(self, *_: int) -> None:
        raise _refused(errno.EINVAL)


class Device:
    """Takes the place of ``os`` and ``mmap`` in ``e2e.inside.region`` for the file at ``path``."""

    def __init__(self, path: Path, size: int, sysfs: Path) -> None:
        self.path, self.size = path, size
        path.touch()
        os.truncate(path, size)
        about = sysfs / "dev" / "char" / f"{MAJOR}:{MINOR}"
        about.mkdir(parents=True)
        (about / "size").write_text(f"{size}\n")
        (about / "align").write_text(f"{ALIGN}\n")
        self._handles: set[int] = set()

    def install(self, patch: pytest.MonkeyPatch, sysfs: Path) -> None:
        patch.setattr(region, "SYSFS", sysfs)
        patch.setattr(region, "os", _Instead(os, open=self.open, fstat=self.fstat, posix_fallocate=self.fallocate))
        patch.setattr(region, "mmap", _Instead(mmap, mmap=partial(self.mapped, Map)))
        patch.setattr(region, "Region", partial(self.mapped, region.Region))

    def open(self, path: str, flags: int, mode: int = 0o777) -> int:
        handle = os.open(path, flags & ~os.O_CREAT, mode) if str(path) == str(self.path) else os.open(path, flags, mode)
        if str(path) == str(self.path):
            self._handles.add(handle)
        return handle

    def fstat(self, handle: int) -> object:
        if handle not in self._handles:
            return os.fstat(handle)
        return SimpleNamespace(st_mode=stat.S_IFCHR | 0o600, st_size=0, st_rdev=os.makedev(MAJOR, MINOR))

    def fallocate(self, handle: int, *where: int) -> None:
        if handle in self._handles:
            raise _refused(errno.ENODEV)
        os.posix_fallocate(handle, *where)

    def mapped(
        self, kind: type[mmap.mmap], handle: int, length: int, flags: int = mmap.MAP_SHARED, offset: int = 0
    ) -> mmap.mmap:  # fmt: skip
        if handle in self._handles:
            if not length or length % ALIGN or offset % ALIGN or flags != mmap.MAP_SHARED:
                raise _refused(errno.EINVAL)
            assert offset + length <= self.size, "the device would map it, and kill whoever touches the end by SIGBUS"
        return kind(handle, length, flags=flags, offset=offset)


class _Instead:
    """A module, but for what is named."""

    def __init__(self, module: object, **instead: object) -> None:
        self._module, self._own = module, instead

    def __getattr__(self, name: str) -> object:
        return self._own[name] if name in self._own else getattr(self._module, name)


def _refused(number: int) -> OSError:
    return OSError(number, os.strerror(number))
