"""How fast is each placement on this GPU, against a device copy measured in the same run?

    python -m e2e.lab.kernels.bench [--out FILE] [--quick]

Per shape (layers x KV heads x head size), tokens and layout: the time to place all layers of one request, bfloat16,
blocks of 16 tokens, whole blocks in random order. ``us``: median over repeats, CUDA events around all launches, begun
on an idle GPU, so that gaps between launches and the host's work before the first count, as they do for a request;
``host_us``: the time that queueing took; ``gpu_us``: the same launches queued behind other work, so the GPU's own
time; ``gb_s``: bytes read + written over ``us``. Without a CUDA GPU it says so, exit code 2.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from functools import partial

import torch

from e2e.inside.geometry import PagedLayer
from e2e.inside.placement import Placement, Unavailable
from e2e.inside.placement.index import Index
from e2e.lab.kernels import LIBRARIES, first_line, get
from e2e.lab.kernels.caches import Geometry, make, stage

SCHEMA = "maru-e2e/placement-bench/1"
SHAPES = ((24, 2, 64), (30, 3, 64), (32, 8, 128))
TOKENS = (256, 2048, 16384)
LAYOUTS = ("blocks_first-NHD", "blocks_first-HND", "packed-LBNHC", "packed-LBHNC")
REPEATS, WARM_UP = 20, 4
#: No GPU of today runs faster, so a wait counted by this is never too short.
CYCLES_PER_US = 2500


@dataclass(frozen=True)
class Way:
    """One way to place all layers of a request. ``per_layer``: one call per layer, as an overlapped load must.
    ``staging``: the buffer order that needs no copy."""

    name: str
    make: Callable[[], Placement]
    per_layer: bool
    staging: str = "layer-major"


def ways() -> Iterator[Way]:
    yield Way("index, per layer", lambda: Index(once=False, dense=True), per_layer=False)
    yield Way("index, once", lambda: Index(once=True, dense=True), per_layer=False)
    yield Way("triton, per layer", lambda: get("triton", "cuda"), per_layer=True)
    yield Way("triton, all layers", lambda: get("triton", "cuda"), per_layer=False)
    for name in LIBRARIES:
        for launch, staging in (("single", "layer-major"), ("multi", "kv-major")):
            make = partial(get, name, "cuda", launch=launch)
            yield Way(f"{name} {launch}", make, per_layer=False, staging=staging)


@dataclass(frozen=True)
class Job:
    """What one measurement moves. ``bytes``: read + written."""

    staged: torch.Tensor
    layers: list[PagedLayer]
    slots: torch.Tensor

    @property
    def bytes(self) -> int:
        return 2 * self.staged.numel() * self.staged.element_size()

    def run(self, placement: Placement, *, per_layer: bool) -> int:
        if not per_layer:
            return placement.scatter(self.staged, self.layers, self.slots)
        return sum(
            placement.scatter(row, (layer,), self.slots)
            for row, layer in zip(self.staged.split(1), self.layers, strict=True)
        )


def prepare(shape: tuple[int, int, int], tokens: int, layout: str, *, staging: str) -> tuple[torch.Tensor, Job]:
    layers, heads, size = shape
    geometry = Geometry(layers, tokens // 16 + 7, 16, heads, size, torch.bfloat16)
    storage, paged = make(layout, geometry, device="cuda")
    generator = torch.Generator().manual_seed(tokens)
    blocks = torch.randperm(geometry.blocks, generator=generator)[: tokens // 16]
    slots = (blocks[:, None] * 16 + torch.arange(16)).flatten().cuda()
    cuda = torch.Generator(device="cuda").manual_seed(tokens)
    values = torch.randn((layers, 2, tokens, heads, size), device="cuda", dtype=torch.bfloat16, generator=cuda)
    return storage, Job(stage(values, staging), paged, slots)


@dataclass(frozen=True)
class Times:
    """Medians in microseconds."""

    us: float
    host_us: float
    gpu_us: float


def measure(work: Callable[[], object]) -> Times:
    for _ in range(WARM_UP):
        work()
    torch.cuda.synchronize()
    waits, host = zip(*(_once(work, busy_us=0) for _ in range(REPEATS)), strict=True)
    busy_us = 2 * max(host) + 100
    own, _ = zip(*(_once(work, busy_us=busy_us) for _ in range(REPEATS)), strict=True)
    return Times(statistics.median(waits), statistics.median(host), statistics.median(own))


def _once(work: Callable[[], object], *, busy_us: float) -> tuple[float, float]:
    """(device, host) microseconds of one call, on a GPU that is kept busy for so long before."""
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    if busy_us:
        torch.cuda._sleep(int(busy_us * CYCLES_PER_US))
    begin.record()
    started = time.perf_counter()
    work()
    host = (time.perf_counter() - started) * 1e6
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) * 1e3, host


def copy_speed() -> float:
    """GB/s of a device copy of 2 GiB, bytes read + written."""
    source = torch.empty(2**31, dtype=torch.uint8, device="cuda").random_()
    target = torch.empty_like(source)
    return 2 * source.numel() / measure(lambda: target.copy_(source)).us / 1e3


def launches(work: Callable[[], object]) -> int | None:
    """Kernels and copies that the device ran, counted by the profiler; None when the profiler can't."""
    from torch.profiler import ProfilerActivity, profile

    try:
        work()
        torch.cuda.synchronize()
        with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as seen:
            work()
            torch.cuda.synchronize()
        return sum(event.device_type == torch.autograd.DeviceType.CUDA for event in seen.events()) or None
    except Exception:
        return None


def rows(copy: float, *, shapes=SHAPES, tokens=TOKENS, layouts=LAYOUTS) -> Iterator[dict[str, object]]:
    placements: dict[str, Placement | str] = {}
    for way in ways():
        try:
            placements[way.name] = way.make()
        except (Unavailable, ImportError) as error:
            placements[way.name] = str(error)
    for shape in shapes:
        for count in tokens:
            for layout in layouts:
                expected: list[float] = []
                for way in ways():
                    base = {"shape": "x".join(map(str, shape)), "tokens": count, "layout": layout, "way": way.name}
                    placement = placements[way.name]
                    if isinstance(placement, str):
                        yield base | {"outcome": "unavailable", "why": placement}
                        continue
                    yield base | _row(placement, way, shape, count, layout, copy, expected)


def _row(placement: Placement, way: Way, shape, tokens: int, layout: str, copy: float, expected: list) -> dict:
    """``expected`` holds the cache that the first way left behind, for the others to equal."""
    try:
        storage, job = prepare(shape, tokens, layout, staging=way.staging)
        times = measure(lambda: job.run(placement, per_layer=way.per_layer))
        if not expected:
            expected.append(storage)
        if not torch.equal(storage, expected[0]):
            return {"outcome": "mismatch", "why": "the cache differs from the one that indexing leaves"}
        speed = job.bytes / times.us / 1e3
        row = {"outcome": "ok", **asdict(times), "gb_s": speed, "of_copy": speed / copy}
        if tokens == 2048:
            row["launches"] = launches(lambda: job.run(placement, per_layer=way.per_layer))
        return row
    except ValueError as error:
        return {"outcome": "refuses", "why": str(error)}
    except Exception as error:
        return {"outcome": "fails", "why": first_line(error)}


def goals(found: list[dict]) -> list[dict[str, object]]:
    """The three goals set for our kernel; ``met`` is None where there is nothing to compare with."""
    speed = {(r["shape"], r["tokens"], r["layout"], r["way"]): r for r in found if r["outcome"] == "ok"}
    all_layers = "triton, all layers"
    big = [r["of_copy"] for key, r in speed.items() if key[:2] == ("32x8x128", 16384) and key[3] == all_layers]
    bound, elsewhere = [], []
    for (shape, tokens, layout, way), row in speed.items():
        ours = speed.get((shape, tokens, layout, all_layers))
        if way == "lmcache single" and ours:
            # less than half of the copy speed: launches bound it, not bytes
            (bound if row["of_copy"] < 0.5 else elsewhere).append(ours["us"] / row["us"])
    told = (
        ("at least 90 % of the copy bandwidth at 32x8x128, 16384 tokens", big, min, lambda worst: worst >= 0.9),
        ("at most half of lmcache's single-layer time where launches bound it", bound, max, lambda worst: worst <= 0.5),
        ("never slower than it elsewhere", elsewhere, max, lambda worst: worst <= 1),
    )
    return [
        {"goal": goal, "worst": worst(seen) if seen else None, "met": met(worst(seen)) if seen else None}
        for goal, seen, worst, met in told
    ]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m e2e.lab.kernels.bench")
    parser.add_argument("--out")
    parser.add_argument("--quick", action="store_true", help="the smallest and the largest shape, rank 5 only")
    options = parser.parse_args(arguments)
    if not torch.cuda.is_available():
        print("The kernels can only be timed on a CUDA GPU, and there is none here.", file=sys.stderr)
        return 2
    from e2e.lab.kernels.regression import versions

    copy = copy_speed()
    chosen = {"shapes": (SHAPES[0], SHAPES[-1]), "layouts": LAYOUTS[:2]} if options.quick else {}
    found = list(rows(copy, **chosen))
    result = {
        "schema": SCHEMA, "versions": versions("cuda"), "copy_gb_s": copy, "rows": found, "goals": goals(found),
    }  # fmt: skip
    with open(options.out, "w", encoding="utf-8") if options.out else nullcontext(sys.stdout) as file:
        json.dump(result, file, indent=1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
