"""The probe: hooks on live objects that hash a request's KV when it was computed and right before attention reads it.

``computed``: after the step that computed the end of a prompt of which nothing came out of a cache. ``read``: in the
first forward of a request that has cached tokens, layer by layer, as soon as the connector's ``wait_for_layer_load``
has returned: on that stream, exactly what the layer will read. Nothing of the connector is replaced; it need not know.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import torch

from e2e.inside.geometry import PagedLayer
from e2e.inside.probe import hashing
from e2e.inside.probe.kept import Ring
from e2e.inside.probe.samples import sample
from e2e.inside.probe.steps import Step, Steps, Tracked
from e2e.inside.probe.wire import hexed, packed

#: Rows kept for the rig to fetch; it asks after every arm.
_ROWS = 512
#: Cold runs whose digests are remembered, to know a wrong read while its bytes are still there.
_COMPUTED = 256
#: KV that is hashed in one go, and for which a GPU has to have twice as much room.
_AT_ONCE_BYTES = 256 << 20


@dataclass
class DigestRow:
    """``step``: number of the engine's step, ``batch``: requests in it. ``nth``: which of its request's reads, from 1.
    ``failed``: the connector itself says that what was read is not
    what it should have loaded. ``values``: one int64 [2, H, blocks] per layer, on the cache's device until fetched.
    ``tail``: the same, [2, H, 1], of the ``slots`` tokens behind the whole blocks, which lie in ``last``; of what was
    computed all but the prompt's last token, which no connector serves."""

    id: int
    tracked: Tracked
    when: str
    tokens: int
    index: torch.Tensor
    step: int = 0
    batch: int = 0
    nth: int = 1
    failed: bool = False
    last: torch.Tensor | None = None
    slots: int = 0
    values: dict[int, torch.Tensor] = field(default_factory=dict)
    tail: dict[int, torch.Tensor] = field(default_factory=dict)
    sample: dict[str, object] | None = None


class Probe:
    def __init__(self, layers: dict[str, PagedLayer], *, keep_bytes: int, samples: int, rank: int = 0) -> None:
        """``layers``: name -> paged tensor, in the model's order. ``keep_bytes``: host memory for raw KV of cold runs,
        0 for none. ``samples``: how many wrong reads between two fetches are sampled."""
        self._number = {name: i for i, name in enumerate(layers)}
        self._layers = list(layers.values())
        self._rank, self._samples = rank, samples
        one = self._layers[0]
        self._cuda = one.device.type == "cuda"
        self._ring = Ring(keep_bytes, pinned=self._cuda) if keep_bytes else None
        # what is kept crosses to the host beside the model's work
        self._side = torch.cuda.Stream(one.device) if self._cuda and self._ring else None
        self._steps = Steps()
        self._reads: list[DigestRow] = []
        self._rows: deque[DigestRow] = deque(maxlen=_ROWS)
        self._computed: dict[int, DigestRow] = {}
        self._blank: list[torch.Tensor] | None = None
        self._next_id = 1
        self._step = self._batch = 0
        self._sampled = 0
        self._undo: list[Callable[[], None]] = []
        if self._cuda:
            self._compile()
        self.digests = True
        #: called as (layer number, layer, blocks, tokens) before a layer is hashed: a planted fault
        self.plant: Callable[[int, PagedLayer, torch.Tensor, int], None] | None = None
        self.cost_s = 0.0

    def _compile(self) -> None:
        """Kernels for whole blocks and for a prompt's end, so that no request waits for a compiler."""
        one = self._layers[0]
        pages = hashing.gathered(self._layers, torch.zeros(1, dtype=torch.int64, device=one.device))
        for slots in (1 << power for power in range(one.block_size.bit_length())):
            hashing.digests(pages[..., :slots, :], keep=4)

    @property
    def layers(self) -> int:
        return len(self._layers)

    def install(self, runner, connector) -> list[str]:
        """Hooks the model runner and, if there is one, the connector. Names of what was hooked."""
        self._wrap(runner, "execute_model", self._around_step)
        if connector is None:
            return ["execute_model"]
        self._wrap(connector, "wait_for_layer_load", self._after_layer)
        if hasattr(connector, "get_block_ids_with_load_errors"):
            self._wrap(connector, "get_block_ids_with_load_errors", self._after_errors)
        return ["execute_model", "wait_for_layer_load"]

    def remove(self) -> None:
        while self._undo:
            self._undo.pop()()

    def _wrap(self, target, name: str, around: Callable) -> None:
        inner, own = getattr(target, name), name in vars(target)
        setattr(target, name, lambda *args, **kwargs: around(inner, *args, **kwargs))
        self._undo.append(lambda: setattr(target, name, inner) if own else delattr(target, name))

    def _around_step(self, inner: Callable, scheduler_output, *args, **kwargs):
        step = self._steps.next(scheduler_output)
        self._step += 1
        self._batch = len(scheduler_output.num_scheduled_tokens)
        self._reads = [self._row(tracked, "read", tokens) for tracked, tokens in step.reads]
        result = inner(scheduler_output, *args, **kwargs)
        if self.digests:
            self._finish(step)
        self._reads = []
        return result

    def _after_layer(self, inner: Callable, layer_name: str, *args, **kwargs):
        result = inner(layer_name, *args, **kwargs)
        number = self._number.get(layer_name)
        for row in self._reads if number is not None else ():
            if self.plant is not None:
                self.plant(number, self._layers[number], row.index, row.tokens)
            if self.digests and len(row.index):
                self._read_layer(row, number)
        return result

    def _after_errors(self, inner: Callable, *args, **kwargs):
        invalid = inner(*args, **kwargs)
        for row in self._reads if invalid else ():
            row.failed = not invalid.isdisjoint([*row.index.tolist(), *row.last.tolist()[: row.slots]])
        return invalid

    def _row(self, tracked: Tracked, when: str, tokens: int) -> DigestRow:
        one = self._layers[0]
        whole = tracked.blocks[: tokens // one.block_size]
        index = torch.tensor(whole, dtype=torch.int64).to(one.device)
        row = DigestRow(self._next_id, tracked, when, tokens, index, self._step, self._batch)
        self._next_id += 1
        served = tokens if when == "read" else tokens - 1
        at, row.slots = divmod(served, one.block_size)
        row.last = torch.tensor(tracked.blocks[at : at + 1], dtype=torch.int64).to(one.device)
        if when == "read" and whole:
            tracked.reads += 1
            row.nth = tracked.reads
        return row

    def _read_layer(self, row: DigestRow, number: int) -> None:
        start = time.perf_counter()
        pages = hashing.pages(self._layers[number], row.index)
        row.values[number] = hashing.digests(pages, keep=3)
        self._read_tail(row, number)
        if not self._cuda:  # on a GPU comparing now would wait for the device; see _finish
            self._suspect(row, number, pages)
        self.cost_s += time.perf_counter() - start

    def _read_tail(self, row: DigestRow, number: int) -> None:
        if row.slots:
            pages = hashing.pages(self._layers[number], row.last)
            row.tail[number] = hashing.digests(pages[..., : row.slots, :], keep=3)

    def _finish(self, step: Step) -> None:
        start = time.perf_counter()
        for row in self._reads:
            if self._cuda:
                for number in sorted(row.values):
                    if row.sample is None and self._differs(row, number):
                        self._suspect(row, number, hashing.pages(self._layers[number], row.index))
            if row.values:
                self._rows.append(row)
        for tracked in step.completes:
            self._complete(tracked)
        self.cost_s += time.perf_counter() - start

    def _complete(self, tracked: Tracked) -> None:
        row = self._row(tracked, "computed", tracked.length)
        if not len(row.index):
            return
        raw = self._ring.take(tracked.prompt, *self._raw_form(row)) if self._ring else None
        direct = raw is not None and not self._cuda
        for group in self._groups(len(row.index)):
            kept = None if raw is None else raw[group.start : group.stop]
            layers = self._layers[group.start : group.stop]
            pages = hashing.gathered(layers, row.index, kept if direct else None)
            row.values |= zip(group, hashing.digests(pages, keep=4), strict=True)
            if kept is not None and not direct:
                self._side.wait_stream(torch.cuda.current_stream())
                with torch.cuda.stream(self._side):
                    kept.copy_(pages, non_blocking=True)
                pages.record_stream(self._side)
        if row.slots:
            pages = hashing.gathered(self._layers, row.last)
            row.tail |= enumerate(hashing.digests(pages[..., : row.slots, :], keep=4))
        self._rows.append(row)
        self._computed.pop(tracked.prompt, None)
        self._computed[tracked.prompt] = row
        if len(self._computed) > _COMPUTED:
            del self._computed[next(iter(self._computed))]

    def _groups(self, blocks: int) -> Iterator[range]:
        """Layers that are hashed at once: as many as the memory for it allows."""
        one = self._layers[0]
        size = 2 * one.heads * blocks * one.block_size * one.head_size * one.dtype.itemsize
        count, many = len(self._layers), max(_AT_ONCE_BYTES // size, 1)
        return (range(first, min(first + many, count)) for first in range(0, count, many))

    def _raw_form(self, row: DigestRow) -> tuple[tuple[int, ...], torch.dtype]:
        one = self._layers[0]
        integer = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[one.dtype.itemsize]
        return (len(self._layers), 2, one.heads, len(row.index), one.block_size, one.head_size), integer

    def _differs(self, row: DigestRow, number: int) -> bool:
        known = self._computed.get(row.tracked.prompt)
        if known is None:
            return False
        blocks = min(len(row.index), len(known.index))
        return not torch.equal(known.values[number][..., :blocks], row.values[number][..., :blocks])

    def _suspect(self, row: DigestRow, number: int, pages: torch.Tensor) -> None:
        """Samples the first layer of ``row`` that isn't what was computed, if the bytes read are still there."""
        if row.sample is not None or self._sampled >= self._samples or not self._differs(row, number):
            return
        known = self._computed[row.tracked.prompt]
        raw = self._ring.find(row.tracked.prompt, *self._raw_form(known)) if self._ring else None
        if self._side:
            self._side.synchronize()
        pages = pages.cpu()
        if raw is None or (self._cuda and not self._still(row, number, pages)):
            return
        self._sampled += 1
        blank = None if self._blank is None else self._blank[number]
        row.sample = sample(raw[number], pages, blank=blank, layer=number, paged=self._layers[number], index=row.index)

    def _still(self, row: DigestRow, number: int, pages: torch.Tensor) -> bool:
        again = hashing.digests(pages.to(self._layers[0].device), keep=3)
        return torch.equal(again, row.values[number])

    def note_blank(self) -> None:
        """Remembers what every block was just overwritten with; block 1 stands for all. A page that was never written
        is known by it."""
        one = torch.ones(1, dtype=torch.int64, device=self._layers[0].device)
        self._blank = [hashing.pages(layer, one)[:, :, 0].cpu() for layer in self._layers]

    def rows(self, after: int) -> list[dict[str, object]]:
        """Rows with an id above ``after`` as JSON values, oldest first."""
        self._sampled = 0
        return [self._json(row) for row in self._rows if row.id > after]

    def _json(self, row: DigestRow) -> dict[str, object]:
        one = self._layers[0]
        page = torch.zeros(one.block_size, one.head_size, dtype=one.dtype, device=one.device)
        missing = [number for number in range(len(self._layers)) if number not in row.values]
        blank = None
        if row.when == "read" and self._blank is not None:
            on_device = torch.stack(self._blank).to(one.device)
            blank = packed(hashing.digests(on_device, keep=3))
        return {
            "id": row.id, "request": row.tracked.request, "when": row.when, "rank": self._rank, "nth": row.nth,
            "step": row.step, "batch": row.batch,
            "reads": row.tracked.reads if row.when == "read" else 1, "failed": row.failed, "tokens": row.tokens,
            "blocks": len(row.index), "block_size": one.block_size, "layers": len(self._layers), "heads": one.heads,
            "token_granular": one.token_granular, "hash": hashing.name(one.device), "missing_layers": missing,
            "values": self._packed(row.values), "tail": self._packed(row.tail) if row.tail else None,
            "zero": hexed(hashing.digests(page, keep=0)), "blank": blank, "sample": row.sample,
        }  # fmt: skip

    def _packed(self, values: dict[int, torch.Tensor]) -> str:
        """Of all layers, zeros for those that are missing."""
        blank = torch.zeros_like(next(iter(values.values())))
        return packed(torch.stack([values.get(number, blank) for number in range(len(self._layers))]))
