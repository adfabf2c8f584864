"""How fast the embedded connector moves KV here, beside what a pinned copy of the machine does, and what digests cost.

python -m e2e.tests.benchmarks.transfer [--shape LxHxD] [--tokens N...]
No engine: the worker's half over a real pool and index. What was loaded is compared with what was stored. Ratios are of
the bytes a second of one large pinned copy (memory to memory on a CPU); no ratio fails.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import torch

from e2e.inside.config import parse
from e2e.inside.evidence import Evidence
from e2e.inside.geometry import PagedLayer
from e2e.inside.gpu_memory import OnGpu
from e2e.inside.index.client import Client, own_index
from e2e.inside.memory import Mapped
from e2e.inside.placement.base import words
from e2e.inside.pool import Pool
from e2e.inside.probe.probe import Probe
from e2e.inside.probe.steps import Step, Tracked
from e2e.inside.region import region
from e2e.inside.scheduler_side import Load, Store
from e2e.inside.worker_side import WorkerSide

BLOCK, CHUNK, REPEATS = 16, 256, 5
#: For one store. Seconds.
LIMIT_S = 60.0
WAYS = [
    {"storage_format": form, "placement": placement, "load": load, "overlap": overlap}
    for form in ("chunkwise", "layerwise")
    for placement in ("index", "kernel")
    for load, overlap in (("sync", False), ("async", False), ("async", True))
]  # fmt: skip


class Bench:
    """Two sets of blocks: what is stored, and where it is loaded to."""

    def __init__(self, folder: str, shape: tuple[int, int, int], tokens: int, *, on_gpu: bool, pin: bool) -> None:
        layers, heads, size = shape
        self.device = torch.device("cuda" if on_gpu else "cpu")
        self.chunks, per = tokens // CHUNK, CHUNK // BLOCK
        count = self.chunks * per
        form = (2 * count + 1, 2, BLOCK, heads, size)
        self.bytes = layers * 2 * self.chunks * CHUNK * heads * size * 2
        self.layers = {
            f"model.layers.{i}.attn": PagedLayer.split(
                torch.empty(form, dtype=torch.bfloat16, device=self.device).normal_(), kv_first=False
            )
            for i in range(layers)
        }
        order = torch.randperm(2 * count, generator=torch.Generator().manual_seed(0)).add(1).tolist()
        self.source, self.target = order[:count], order[count:]
        pool_bytes = self.bytes + (64 << 20)
        extra = {"embedded_pool_dir": folder, "maru_pool_size": pool_bytes, "maru_async_store": True}
        config = parse({**extra, "maru_kv_chunk_tokens": CHUNK, "embedded_pace_s": 0}, block_size=BLOCK)
        mapped = Mapped(region(f"{folder}/region", pool_bytes))
        memory = OnGpu(mapped, pin=pin) if on_gpu else mapped
        self.pinned = on_gpu and memory.pinned
        index = Client(own_index(Path(folder), pool_bytes))
        self.pool = Pool(memory, pool_bytes, index=index, evidence=Evidence(folder, "bench"))
        self.settings = config.defaults
        self.worker = WorkerSide(config, self.pool, self.layers, block_size=BLOCK, rank=0)

    def settle(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize()

    def timed(self, work: Callable[[], None]) -> float:
        self.settle()
        began = time.perf_counter()
        work()
        self.settle()
        return time.perf_counter() - began

    def store(self, number: int, way: dict[str, object]) -> tuple[float, float]:
        """Seconds until the engine may go on, and until all is in the pool."""
        settings, per = self.settings.override(way), CHUNK // BLOCK
        stores = [
            Store(f"r{number}", settings, f"{number}-{at}", at, self.source[at * per : (at + 1) * per], "t")
            for at in range(self.chunks)
        ]
        began = time.perf_counter()
        self.worker.begin_step(stores, set())
        self.worker.end_step()
        free = time.perf_counter() - began
        self.worker.settle(LIMIT_S)
        return free, time.perf_counter() - began

    def load(self, number: int, stored: int, way: dict[str, object]) -> None:
        settings, name = self.settings.override(way), f"l{number}"
        keys = [f"{stored}-{at}" for at in range(self.chunks)]
        self.worker.start_loads([Load(name, settings, keys, 0, self.chunks * CHUNK, self.target)])
        while way["load"] == "async" and name not in self.worker.finished(set())[1]:
            time.sleep(0.0001)
        for layer in self.layers:
            self.worker.wait_for_layer(layer)
        self.worker.end_step()
        self.worker.finished({name})

    def same(self) -> bool:
        return all(
            torch.equal(words(layer.logical[self.source]), words(layer.logical[self.target]))
            for layer in self.layers.values()
        )

    def clear(self) -> None:
        for layer in self.layers.values():
            layer.logical[self.target] = 0
        self.pool.clear()


def pinned_copies(size: int, device: torch.device) -> dict[str, float]:
    """Bytes a second of the fastest of some copies, each way."""
    host = torch.ones(size, dtype=torch.uint8, pin_memory=device.type == "cuda")
    there = torch.zeros(size, dtype=torch.uint8, device=device)
    found = {}
    for name, into, source in (("load", there, host), ("store", host, there)):
        taken = []
        for _ in range(REPEATS):
            began = time.perf_counter()
            into.copy_(source, non_blocking=True)
            if device.type == "cuda":
                torch.cuda.synchronize()
            taken.append(time.perf_counter() - began)
        found[name] = size / min(taken)
    return found


def digest_cost(bench: Bench, tokens: int) -> float:
    """Seconds that the digests of one computed prompt keep the model's stream."""
    probe = Probe(bench.layers, keep_bytes=256 << 20, samples=4)
    tracked = Tracked("r", prompt=1, length=tokens, blocks=bench.source[: tokens // BLOCK])
    taken = []
    for _ in range(REPEATS + 1):
        bench.settle()
        began = time.perf_counter()
        probe._finish(Step(reads=[], completes=[tracked]))
        if bench.device.type == "cuda":
            torch.cuda.current_stream().synchronize()
        taken.append(time.perf_counter() - began)
    return statistics.median(taken[1:])


@contextmanager
def made(shape: tuple[int, int, int], tokens: int, *, on_gpu: bool, pin: bool) -> Iterator[Bench]:
    with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="maru-e2e-bench-") as folder:
        bench = Bench(folder, shape, tokens, on_gpu=on_gpu, pin=pin)
        yield bench
        bench.worker.close()


def measured(bench: Bench, tokens: int) -> None:
    copies = pinned_copies(min(bench.bytes, 1 << 30), bench.device)
    how = "pinned pool" if bench.pinned else "ring" if bench.device.type == "cuda" else "host"
    print(f"\n{tokens} tokens, {bench.bytes / 1e9:.2f} GB, {how}; one large copy: "
          + ", ".join(f"{name} {rate / 1e9:.1f} GB/s" for name, rate in copies.items()), flush=True)  # fmt: skip
    for way in WAYS:
        name = " ".join([way["storage_format"], way["placement"], way["load"], "overlap" if way["overlap"] else ""])
        frees, stores, loads = [], [], []
        for number in range(REPEATS):
            bench.clear()
            free, stored = bench.store(number, way)
            frees.append(free)
            stores.append(bench.bytes / stored)
            loads.append(bench.bytes / bench.timed(partial(bench.load, number, number, way)))
            assert bench.same(), f"{name}: what was loaded is not what was stored"
        load, store = statistics.median(loads), statistics.median(stores)
        print(f"  {name:34} load {load / 1e9:6.1f} GB/s ({load / copies['load']:4.0%})  "
              f"store {store / 1e9:6.1f} GB/s ({store / copies['store']:4.0%}), engine held {min(frees) * 1e3:6.1f} ms",
              flush=True)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", default="32x8x128", help="layers x KV heads x head size")
    parser.add_argument("--tokens", type=int, nargs="+", default=[4096, 16384, 32768])
    given = parser.parse_args()
    shape, on_gpu = tuple(map(int, given.shape.split("x"))), torch.cuda.is_available()
    print(f"{torch.cuda.get_device_name() if on_gpu else 'CPU'}, torch {torch.__version__}, {given.shape}, bfloat16")
    with torch.inference_mode():
        for tokens in given.tokens:
            for pin in (True, False) if on_gpu else (True,):
                with made(shape, tokens, on_gpu=on_gpu, pin=pin) as bench:
                    measured(bench, tokens)
                    for each in (512, 2048, tokens) if pin else ():
                        print(f"  digests of {each} tokens: {digest_cost(bench, each) * 1e3:.2f} ms", flush=True)


if __name__ == "__main__":
    main()
