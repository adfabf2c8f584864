"""What a pool does to its region: writes, reads and, where hosts don't see each other's caches, moves cache lines."""

from __future__ import annotations

import ctypes
import mmap
from typing import Protocol

import torch

from e2e.inside.region import PoolError


class Memory(Protocol):
    """``start`` and ``size`` in bytes of the region; tensors are uint8 and contiguous, on the host."""

    def write(self, start: int, data: torch.Tensor) -> None: ...

    def read(self, start: int, out: torch.Tensor) -> None: ...

    def write_back(self, start: int, size: int) -> None:
        """What this host wrote there is in the memory when this returns."""

    def fetch(self, start: int, size: int) -> None:
        """What this host reads there next comes from the memory."""


class Mapped:
    """A mapped region, all of whose users see the same caches: one host, or memory that keeps hosts coherent."""

    def __init__(self, region: mmap.mmap) -> None:
        self.bytes = torch.frombuffer(region, dtype=torch.uint8)

    def write(self, start: int, data: torch.Tensor) -> None:
        self.bytes[start : start + data.numel()].copy_(data)

    def read(self, start: int, out: torch.Tensor) -> None:
        out.copy_(self.bytes[start : start + out.numel()])

    def write_back(self, start: int, size: int) -> None:
        pass

    def fetch(self, start: int, size: int) -> None:
        pass


class Flushed(Mapped):
    """A region whose users may be hosts that don't see each other's caches. Both ways a line leaves the cache
    (libpmem's pmem_flush(3) with CLFLUSH or CLFLUSHOPT; CLWB may keep it), and pmem_drain(3) waits until it has."""

    def __init__(self, region: mmap.mmap) -> None:
        super().__init__(region)
        self._pmem = _libpmem()

    def write_back(self, start: int, size: int) -> None:
        self._pmem.pmem_flush(ctypes.c_void_p(self.bytes.data_ptr() + start), ctypes.c_size_t(size))
        self._pmem.pmem_drain()

    fetch = write_back


def _libpmem() -> ctypes.CDLL:
    try:
        libc = ctypes.CDLL(None)
        libc.setenv(b"PMEM_NO_CLWB", b"1", 1)  # read as the library is loaded, and os.environ may be too late for it
        return ctypes.CDLL("libpmem.so.1")
    except OSError:
        raise PoolError("embedded_pool_flush needs libpmem; install libpmem1, or leave it out.") from None
