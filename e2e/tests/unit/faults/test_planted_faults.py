"""Every planted fault in the embedded connector's worker half, on little tensors: it fires, it spoils, it stays inside
its pages, and its clean twin spoils nothing."""

from __future__ import annotations

import json
import re
import time
from dataclasses import replace

import pytest
import torch

from e2e.base.cell import Cell
from e2e.faults.catalogue import FAULTS
from e2e.faults.info import Shape
from e2e.inside.config import EmbeddedConfig, RequestSettings
from e2e.inside.faults import AROUND_ANY, get
from e2e.inside.faults.plant import Plant
from e2e.inside.geometry import PagedLayer
from e2e.inside.scheduler_side import Load, Store
from e2e.inside.worker_side import WorkerSide
from e2e.tests.unit.inside.pools import pool_in

LAYERS, BLOCKS, HEADS, BLOCK, SIZE, CHUNK = 5, 40, 3, 8, 4, 16
#: A request's blocks, out of order; two chunks each.
COLD, COLD_B, WARM = [3, 9, 4, 7], [12, 11, 15, 10], [22, 20, 25, 30]
BEFORE, AGAIN = [31, 33, 35, 37], [28, 26, 29, 27]
#: They strike while an answer is given.
LATER = {name for name, fault in FAULTS.items() if fault.kind == "generated tokens"}
STRAY = ("stray_write", "stray_tail", "stray_bit")
SHAPE = Shape(
    packed=True, kv_heads=HEADS, layers=LAYERS, block_size=BLOCK, chunk_tokens=CHUNK, served_chunks=2, prompts=2
)


def caches(layout: str) -> dict[str, PagedLayer]:
    def tensor() -> torch.Tensor:
        if layout == "HND":
            return torch.randn(BLOCKS, HEADS, BLOCK, 2 * SIZE)
        return torch.randn(BLOCKS, BLOCK, HEADS, 2 * SIZE).transpose(1, 2)

    return {f"model.layers.{i}.attn": PagedLayer.packed(tensor()) for i in range(LAYERS)}


class Rig:
    """A worker half over a real pool, driven as vLLM would."""

    def __init__(self, folder, layout: str, settings: RequestSettings, *, pool=None) -> None:
        torch.manual_seed(0)
        self.layers = caches(layout)
        self.pool = pool or pool_in(folder, 1 << 22)
        config = EmbeddedConfig(str(folder), "", 1 << 22, CHUNK, 0.05, settings, ())
        self.worker = WorkerSide(config, self.pool, self.layers, block_size=BLOCK, rank=0)
        self.settings = settings

    def kv(self, blocks: list[int]) -> torch.Tensor:
        """[L, B, 2, N, H, D], a copy."""
        return torch.stack([layer.logical[blocks] for layer in self.layers.values()])

    @torch.inference_mode()  # as in vLLM's worker; the loader's thread is outside it
    def compute(self, request: str, blocks: list[int], seed: int) -> torch.Tensor:
        """One step that computes and stores two chunks; what it computed."""
        generator = torch.Generator().manual_seed(seed)
        stores = [
            Store(request, self.settings, f"{request}{chunk}", chunk, blocks[2 * chunk : 2 * chunk + 2])
            for chunk in (0, 1)
        ]
        self.worker.begin_step(stores, set())
        truth = []
        for layer in self.layers.values():
            fresh = torch.randn((len(blocks), 2, BLOCK, HEADS, SIZE), generator=generator)
            layer.logical[blocks] = fresh
            truth.append(fresh)
        self.worker.end_step()
        return torch.stack(truth)

    @torch.inference_mode()
    def load(self, key: str, blocks: list[int]) -> torch.Tensor:
        """Loads two chunks; what each layer holds when the forward reads it, [L, B, 2, N, H, D]."""
        request = f"warm-{key}"
        self.worker.start_loads([Load(request, self.settings, [f"{key}0", f"{key}1"], 0, 2 * CHUNK, blocks)])
        deadline = time.monotonic() + 10
        if self.settings.load == "async":
            while request not in self.worker.finished(set())[1]:
                assert time.monotonic() < deadline, "the load was never reported"
                time.sleep(0.002)
        read = []
        for name, layer in self.layers.items():
            self.worker.wait_for_layer(name)
            read.append(layer.logical[blocks].clone())
        self.worker.end_step()
        return torch.stack(read)

    @property
    def fired(self) -> int:
        return self.pool.evidence.counters().get(f"fired:{self.settings.fault}", 0)


@pytest.fixture
def rig(tmp_path):
    made = []

    def make(layout: str, settings: RequestSettings) -> Rig:
        made.append(Rig(tmp_path / str(len(made)), layout, settings))
        return made[-1]

    yield make
    for one in made:
        one.worker.close()


CELLS = [
    (layout, RequestSettings(storage_format=fmt, load="async" if overlap else "sync", overlap=overlap, placement=place))
    for layout in ("NHD", "HND")
    for fmt, overlap in (("chunkwise", False), ("layerwise", True))
    for place in ("index", "kernel")
]


#: What does wrong everywhere, and harm in some stories.
HARMLESS_HERE = {"announced_early"}


def applies(name: str, layout: str, settings: RequestSettings) -> bool:
    overlap = "on" if settings.overlap else "off"
    cell = Cell({"layout": layout, "overlap": overlap, "placement": settings.placement})
    return FAULTS[name].why_not(cell, SHAPE) is None


@pytest.mark.parametrize(("layout", "settings"), CELLS)
def test_the_clean_twin_loads_what_was_computed(rig, layout, settings):
    one = rig(layout, settings)
    truth, other = one.compute("a", COLD, 1), one.compute("b", COLD_B, 2)
    assert torch.equal(one.load("a", WARM), truth)
    assert torch.equal(one.kv(COLD), truth)
    assert torch.equal(one.kv(COLD_B), other)
    assert not [name for name in one.pool.evidence.counters() if name.startswith("fired")]


@pytest.mark.parametrize(("layout", "settings"), CELLS)
@pytest.mark.parametrize("name", [name for name, fault in FAULTS.items() if not fault.scenarios and name not in LATER])
def test_a_fault_fires_exactly_where_the_catalogue_says_and_then_spoils(rig, name, layout, settings):
    one = rig(layout, replace(settings, fault=name))
    truth = one.compute("a", COLD, 1)
    one.compute("b", COLD_B, 2)
    first_answer_spoiled = not torch.equal(one.kv(COLD), truth)
    one.load("b", BEFORE)
    before = one.kv(BEFORE)
    read = [one.load("a", blocks) for blocks in (WARM, AGAIN)]
    assert (one.fired > 0) is (applies(name, layout, settings) or name in HARMLESS_HERE)
    spoiled = not all(torch.equal(each, truth) for each in read)
    damaged = not torch.equal(one.kv(BEFORE), before)
    assert (spoiled or damaged or first_answer_spoiled) is applies(name, layout, settings)
    assert first_answer_spoiled is (name in ("store_writes_cache", "store_strays"))
    assert damaged is (name in STRAY) or name == "overlap_not_waited", "it lands late, and is no damage to others"
    assert all(torch.isfinite(each).all() for each in read)
    assert not [load for load in one.pool.evidence.loads() if load["failed"]], json.dumps(one.pool.evidence.loads())


@pytest.mark.parametrize("layout", ["NHD", "HND"])
@pytest.mark.parametrize("name", [name for name, fault in FAULTS.items() if fault.kind != "damage to others"])
def test_a_fault_stays_inside_the_pages_of_its_load(rig, name, layout):
    settings = RequestSettings(load="async", overlap=True, placement="index", fault=name)
    one = rig(layout, settings)
    one.compute("a", COLD, 1)
    one.compute("b", COLD_B, 2)
    elsewhere = [block for block in range(BLOCKS) if block not in WARM]
    before = one.kv(elsewhere)
    one.load("a", WARM)
    assert torch.equal(one.kv(elsewhere), before)


@pytest.mark.parametrize("name", AROUND_ANY)
@pytest.mark.parametrize("layout", ["NHD", "HND"])
def test_around_any_connector_a_fault_spoils_the_pages_it_is_given(name, layout):
    layers, fired = caches(layout), {}
    plant = Plant(get(name), fired, layers=LAYERS)
    blocks = torch.tensor([5, 2, 8])
    before = {key: layer.logical.clone() for key, layer in layers.items()}
    for number, layer in enumerate(layers.values()):
        plant(number, layer, blocks, 3 * BLOCK)
    changed = [not torch.equal(layer.logical, before[key]) for key, layer in layers.items()]
    assert fired[name] == sum(changed)
    assert any(changed)
    untouched = [block for block in range(BLOCKS) if block not in blocks.tolist()]
    for key, layer in layers.items():
        assert torch.equal(layer.logical[untouched], before[key][untouched])


def test_a_planted_bit_flip_is_one_bit():
    layers, fired = caches("NHD"), {}
    plant = Plant(get("bit_flip"), fired, layers=LAYERS)
    before = [layer.logical.clone() for layer in layers.values()]
    for number, layer in enumerate(layers.values()):
        plant(number, layer, torch.tensor([5, 2, 8]), 3 * BLOCK)
    after = [layer.logical for layer in layers.values()]
    flipped = [int((a.view(torch.int32) ^ b.view(torch.int32)).sum()) for a, b in zip(before, after, strict=True)]
    assert flipped == [0, 0, 1, 0, 0]
    assert fired == {"bit_flip": 1}


@pytest.mark.parametrize(("rank", "spoils"), [(0, True), (1, False)])
def test_a_fault_of_one_rank_is_none_on_another(rig, rank, spoils):
    one = rig("HND", RequestSettings(fault=f"bit_flip_on_rank_{rank}"))
    truth = one.compute("a", COLD, 1)
    assert torch.equal(one.load("a", WARM), truth) is not spoils
    fired = {name: n for name, n in one.pool.evidence.counters().items() if re.fullmatch("fired:[^/]*", name)}
    assert fired == ({"fired:bit_flip": 1} if spoils else {})
