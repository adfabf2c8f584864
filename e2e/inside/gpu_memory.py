"""The pool's memory as a GPU sees it: it copies from and to the region itself, and hashes what it holds.

So bytes cross the link once, and are proven where they arrived. A region that can't be pinned (CUDA refuses some
devices) is copied by the host, over pinned buffers.
"""

from __future__ import annotations

import ctypes
import logging
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cache

import torch

from e2e.inside import mix
from e2e.inside.memory import Mapped
from e2e.inside.placement.base import raw

log = logging.getLogger("vllm.maru_e2e.pool")
_MIX, _WORD = "mix:", (1 << 64) - 1
_TO_DEVICE = 1  # cudaMemcpyHostToDevice
#: Where it begins in the region, and a [n, size] tensor.
Run = tuple[int, torch.Tensor]


class OnGpu:
    """``mapped`` for buffers that are uint8 tensors, contiguous, on one GPU. Checksums are two lanes of mix.py; those
    of a host (xxh3-128) are proven too, on the host."""

    def __init__(self, mapped: Mapped, *, pin: bool = True) -> None:
        """``pin``: False to copy by the host in any case."""
        self._mapped = mapped
        self._bytes = torch.frombuffer(mapped.bytes, dtype=torch.uint8)
        why = _pin(self._bytes) if pin else "it is not to be"
        if why:
            log.warning("The pool's region is not pinned (%s), so the host copies what a GPU loads and stores.", why)
        self._ring = Ring() if why else None
        if not why:  # one that goes while CUDA believes it pinned breaks whatever is mapped there next
            weakref.finalize(self, _unpin, self._bytes).atexit = False

    @property
    def pinned(self) -> bool:
        return self._ring is None

    def size(self, buffer: torch.Tensor) -> int:
        return buffer.numel()

    def checksums(self, buffers: Sequence[torch.Tensor]) -> Callable[[], list[str]]:
        sums = torch.cat([mix.sums(rows, lanes=2) for _, rows in runs(buffers)])
        told = torch.empty(sums.shape, dtype=sums.dtype, pin_memory=sums.is_cuda).copy_(sums, non_blocking=True)
        ready = self.mark()

        def answer() -> list[str]:
            ready()
            return [f"{_MIX}{one & _WORD:016x}{other & _WORD:016x}" for one, other in told.tolist()]

        return answer

    def right(self, buffers: Sequence[torch.Tensor], checksums: Sequence[str]) -> list[bool]:
        mixed = [buffer for buffer, one in zip(buffers, checksums, strict=True) if one.startswith(_MIX)]
        found = iter(self.checksums(mixed)() if mixed else ())
        return [
            next(found) == one if one.startswith(_MIX) else self._mapped.right([raw(buffer.cpu())], [one]) == [True]
            for buffer, one in zip(buffers, checksums, strict=True)
        ]

    def write(self, starts: Sequence[int], buffers: Sequence[torch.Tensor]) -> None:
        for start, rows in runs(buffers, starts):
            room = self._bytes[start : start + rows.numel()]
            if self._ring:
                self._ring.up(rows.view(-1), room)
            else:
                room.copy_(rows.view(-1), non_blocking=True)

    def read(self, starts: Sequence[int], buffers: Sequence[torch.Tensor]) -> None:
        for start, stride, rows in strided(runs(buffers, starts)):
            if stride and not self._ring and copied_2d(self._bytes.data_ptr() + start, stride, rows):
                continue
            for number, row in enumerate(rows):
                stored = self._bytes[start + number * stride : start + number * stride + row.numel()]
                if self._ring:
                    self._ring.down(stored, row)
                else:
                    row.copy_(stored, non_blocking=True)

    def mark(self) -> Callable[[], object]:
        return torch.cuda.current_stream().record_event().synchronize

    def write_back(self, start: int, size: int) -> None:
        self._mapped.write_back(start, size)

    def fetch(self, start: int, size: int) -> None:
        self._mapped.fetch(start, size)


def _pin(region: torch.Tensor) -> str:
    """Registers it with CUDA. Empty, or why it can't be."""
    error = int(torch.cuda.cudart().cudaHostRegister(region.data_ptr(), region.numel(), 0))
    if error == 0:
        return ""
    with suppress(RuntimeError):  # CUDA keeps the error for whoever launches next, and that is to be nobody else
        torch.zeros(1, device="cuda")
    return f"CUDA's error {error}"


def _unpin(region: torch.Tensor) -> None:
    torch.cuda.synchronize()
    torch.cuda.cudart().cudaHostUnregister(region.data_ptr())


def runs(buffers: Sequence[torch.Tensor], starts: Sequence[int] | None = None) -> Iterator[Run]:
    """(start of the first, [n, size] tensor without a copy) of all buffers, in order: as few as there are runs of one
    size that are neighbours in memory, and in the region where ``starts`` says where they are there."""
    first = 0
    places = [buffer.data_ptr() for buffer in buffers]
    for at in range(1, len(buffers) + 1):
        size, gone = buffers[first].numel(), at - first
        if (
            at < len(buffers)
            and buffers[at].numel() == size
            and places[at] == places[first] + gone * size
            and (starts is None or starts[at] == starts[first] + gone * size)
            and buffers[at].untyped_storage().data_ptr() == buffers[first].untyped_storage().data_ptr()
        ):
            continue
        yield starts[first] if starts is not None else 0, buffers[first].as_strided((gone, size), (size, 1))
        first = at


def strided(found: Iterable[Run]) -> Iterator[tuple[int, int, torch.Tensor]]:
    """(start of the first, from one to the next, [n, size] tensor without a copy) of what ``runs`` found: as few as
    there are whose parts are of one size, neighbours in memory, and equally far apart in the region."""
    together: list[Run] = []
    for run in found:
        if together and not _goes_on(together, run):
            yield _joined(together)
            together = []
        together.append(run)
    if together:
        yield _joined(together)


def _goes_on(together: Sequence[Run], run: Run) -> bool:
    (first, rows), (start, more), size = together[0], run, together[0][1].numel()
    stride = together[1][0] - first if len(together) > 1 else start - first
    return (
        more.numel() == size
        and start == first + len(together) * stride > first
        and more.data_ptr() == rows.data_ptr() + len(together) * size
        and more.untyped_storage().data_ptr() == rows.untyped_storage().data_ptr()
    )


def _joined(together: Sequence[Run]) -> tuple[int, int, torch.Tensor]:
    (first, rows), size = together[0], together[0][1].numel()
    stride = together[1][0] - first if len(together) > 1 else 0
    return first, stride, rows.as_strided((len(together), size), (size, 1))


def copied_2d(source: int, stride: int, rows: torch.Tensor) -> bool:
    """Into ``rows`` from as many places of pinned memory, ``stride`` bytes apart, in one go and in the current stream:
    the link has no pause between them. False where that can't be had."""
    if (copy := _memcpy_2d()) is None:
        return False
    width, stream = rows.shape[1], torch.cuda.current_stream(rows.device).cuda_stream
    with torch.cuda.device(rows.device):
        error = copy(rows.data_ptr(), width, source, stride, width, len(rows), _TO_DEVICE, stream)
    if error:
        raise RuntimeError(f"CUDA's error {error} in a copy of {len(rows)} rows")
    return True


@cache
def _memcpy_2d() -> Callable[..., int] | None:
    """cudaMemcpy2DAsync of the runtime that torch has loaded; torch itself copies row by row."""
    try:
        copy = ctypes.CDLL(f"libcudart.so.{(torch.version.cuda or '').partition('.')[0]}").cudaMemcpy2DAsync
    except (OSError, AttributeError):
        return None
    address, size = ctypes.c_void_p, ctypes.c_size_t
    copy.argtypes = [address, size, address, size, size, size, ctypes.c_int, address]
    return copy


class Ring:
    """Pinned buffers on the way between a GPU and memory that can't be pinned. Safe to use from several threads."""

    def __init__(self, *, count: int = 4, size: int = 32 << 20) -> None:
        self._buffers = [torch.empty(size, dtype=torch.uint8, pin_memory=True) for _ in range(count)]
        self._free: list[torch.cuda.Event | None] = [None] * count
        self._lock, self._next = threading.Lock(), 0

    def down(self, source: torch.Tensor, target: torch.Tensor) -> None:
        """Host to GPU: the last copies go on behind the current stream."""
        with self._lock:
            for part, into in zip(self._parts(source), self._parts(target), strict=True):
                number, buffer = self._take()
                into.copy_(buffer[: part.numel()].copy_(part), non_blocking=True)
                self._free[number] = torch.cuda.current_stream(target.device).record_event()

    def up(self, source: torch.Tensor, target: torch.Tensor) -> None:
        """GPU to host, where all is when this returns. The GPU copies the next part while the host copies this one."""
        with self._lock:
            under_way: list[tuple[int, torch.Tensor, torch.Tensor]] = []
            for part, into in zip(self._parts(source), self._parts(target), strict=True):
                number, buffer = self._take()
                buffer[: part.numel()].copy_(part, non_blocking=True)
                self._free[number] = torch.cuda.current_stream(source.device).record_event()
                under_way.append((number, buffer[: part.numel()], into))
                if len(under_way) > 1:
                    self._arrived(*under_way.pop(0))
            for each in under_way:
                self._arrived(*each)

    def _arrived(self, number: int, buffer: torch.Tensor, into: torch.Tensor) -> None:
        self._free[number].synchronize()
        into.copy_(buffer)

    def _parts(self, data: torch.Tensor) -> Iterator[torch.Tensor]:
        return iter(data.split(self._buffers[0].numel()))

    def _take(self) -> tuple[int, torch.Tensor]:
        number, self._next = self._next, (self._next + 1) % len(self._buffers)
        if (event := self._free[number]) is not None:
            event.synchronize()
        return number, self._buffers[number]
