"""What a pool does to its region: writes, reads and, where hosts don't see each other's caches, moves cache lines.
Imports no torch.
"""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import xxhash

from e2e.inside.region import PoolError


class Memory(Protocol):
    """``start`` and ``size`` in bytes of the region. A buffer holds an object's bytes outside of it: here a contiguous
    memoryview that may be written to, on a GPU a tensor (``gpu_memory.py``). A GPU copies and hashes behind what its
    current stream does, and only what is said to wait waits for it."""

    def size(self, buffer: Any) -> int:
        """Bytes."""

    def checksums(self, buffers: Sequence[Any]) -> Callable[[], list[str]]:
        """Waits, when called, and tells them."""

    def right(self, buffers: Sequence[Any], checksums: Sequence[str]) -> list[bool]:
        """Is each what its checksum says? Waits."""

    def write(self, starts: Sequence[int], buffers: Sequence[Any]) -> None: ...

    def read(self, starts: Sequence[int], buffers: Sequence[Any]) -> None: ...

    def mark(self) -> Callable[[], object]:
        """Waits, when called, until what was written before this is in the region."""

    def write_back(self, start: int, size: int) -> None:
        """What this host wrote there is in the memory when this returns."""

    def fetch(self, start: int, size: int) -> None:
        """What this host reads there next comes from the memory."""


class Host:
    """Half of ``Memory``: buffers are memoryviews, checksums xxh3-128."""

    def size(self, buffer: memoryview) -> int:
        return buffer.nbytes

    def checksums(self, buffers: Sequence[memoryview]) -> Callable[[], list[str]]:
        found = [*map(xxhash.xxh3_128_hexdigest, buffers)]
        return lambda: found

    def right(self, buffers: Sequence[memoryview], checksums: Sequence[str]) -> list[bool]:
        return [xxhash.xxh3_128_hexdigest(buffer) == one for buffer, one in zip(buffers, checksums, strict=True)]

    def mark(self) -> Callable[[], object]:
        return lambda: None


class Mapped(Host):
    """A mapped region, all of whose users see the same caches: one host, or memory that keeps hosts coherent."""

    def __init__(self, region: mmap.mmap) -> None:
        self.bytes = memoryview(region)
        self._first = ctypes.addressof(ctypes.c_char.from_buffer(region))

    # not by slices of ``bytes``: ctypes lets other threads run meanwhile

    def write(self, starts: Sequence[int], buffers: Sequence[memoryview]) -> None:
        for start, buffer in zip(starts, buffers, strict=True):
            ctypes.memmove(self._at(start), _array(buffer), buffer.nbytes)

    def read(self, starts: Sequence[int], buffers: Sequence[memoryview]) -> None:
        for start, buffer in zip(starts, buffers, strict=True):
            ctypes.memmove(_array(buffer), self._at(start), buffer.nbytes)

    def _at(self, start: int) -> ctypes.c_void_p:
        return ctypes.c_void_p(self._first + start)

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
        self._pmem.pmem_flush(self._at(start), ctypes.c_size_t(size))
        self._pmem.pmem_drain()

    fetch = write_back


def _array(view: memoryview) -> ctypes.Array[ctypes.c_char]:
    return (ctypes.c_char * view.nbytes).from_buffer(view)


def _libpmem() -> ctypes.CDLL:
    try:
        libc = ctypes.CDLL(None)
        libc.setenv(b"PMEM_NO_CLWB", b"1", 1)  # read as the library is loaded, and os.environ may be too late for it
        return ctypes.CDLL("libpmem.so.1")
    except OSError:
        raise PoolError("embedded_pool_flush needs libpmem; install libpmem1, or leave it out.") from None
