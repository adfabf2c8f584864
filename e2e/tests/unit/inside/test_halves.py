"""Both halves of the embedded connector on real tensors and a real pool; vLLM's scheduler is a few records here."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from types import SimpleNamespace

import pytest
import torch

from e2e.inside.config import parse
from e2e.inside.geometry import PagedLayer
from e2e.inside.index import protocol as p
from e2e.inside.job import Job
from e2e.inside.scheduler_side import SchedulerSide
from e2e.inside.worker_side import WorkerSide
from e2e.tests.unit.inside.pools import filled, index_of, pool_in

BLOCK, CHUNK, HEADS, DIM, LAYERS, BLOCKS = 16, 32, 3, 8, 4, 64
SETTINGS = [
    {"storage_format": fmt, "load": load, "overlap": overlap, "placement": place}
    for fmt in ("chunkwise", "layerwise")
    for load, overlap in (("sync", False), ("async", False), ("async", True))
    for place in ("index", "kernel")
]


def _caches(layout: str, seed: int) -> dict[str, PagedLayer]:
    """Paged layers in NHD or HND, as vLLM 0.32 registers them: (B, H, N, 2*D) views."""
    generator = torch.Generator().manual_seed(seed)
    shape = (BLOCKS, BLOCK, HEADS, 2 * DIM) if layout == "NHD" else (BLOCKS, HEADS, BLOCK, 2 * DIM)
    layers = {}
    for i in range(LAYERS):
        tensor = torch.randn(shape, generator=generator)
        layers[f"model.layers.{i}.attn"] = PagedLayer.packed(tensor.transpose(1, 2) if layout == "NHD" else tensor)
    return layers


class Request(SimpleNamespace):
    @property
    def all_token_ids(self):
        return [*self.prompt_token_ids, *self.output]


class Engine:
    """Stands in for vLLM's step loop: block tables, steps and the order of the hooks, nothing else."""

    def __init__(
        self, tmp_path, layout: str = "NHD", pool_size: int = 1 << 24, pace_s: float = 0.2, *, index=None,
        name: str = "engine", ranks: int = 1, space: dict[str, object] | None = None, **more,
    ) -> None:  # fmt: skip
        extra = {
            "embedded_pool_dir": str(tmp_path),
            "maru_pool_size": pool_size,
            "maru_kv_chunk_tokens": CHUNK,
            "embedded_pace_s": pace_s,
            **more,
        }
        config = parse(extra, block_size=BLOCK)
        self.pool = pool_in(tmp_path, config.pool_size, index=index, engine=name, evict=config.evict)
        space = space or {"model": "m"}
        self.scheduler = SchedulerSide(config, self.pool, space=space, block_size=BLOCK, ranks=ranks)
        self.layers = _caches(layout, seed=1)
        self.worker = WorkerSide(config, self.pool, self.layers, block_size=BLOCK, rank=0)

    def request(self, name: str, tokens: int = 100, *, salt: str = "s", first: int = 1, **params):
        return Request(
            request_id=name, prompt_token_ids=list(range(first, first + tokens)), num_prompt_tokens=tokens, output=[],
            cache_salt=salt, kv_transfer_params=params or None, lora_request=None, mm_features=[],
        )  # fmt: skip

    def compute(self, request, blocks: list[int], steps: list[int], start: int = 0) -> None:
        """Prefills in steps of the given sizes; the KV lies in the cache already (it is random)."""
        at, new = start, True
        for size in steps:
            loads, stores = self.scheduler.step(_output(request.request_id, blocks if new else None, at, size))
            self.worker.begin_step(stores, self.scheduler.overlapped)
            self.worker.start_loads(loads)
            for name in self.layers:
                self.worker.wait_for_layer(name)
            self.worker.end_step()
            at, new = at + size, False

    def load(self, request, blocks: list[int]) -> int:
        """Looks up and loads into ``blocks``; returns the external tokens."""
        external, _ = self.scheduler.matched(request, 0)
        self.scheduler.allocated(request, blocks, external)
        loads, _ = self.scheduler.step(_output(None, None, 0, 0))
        self.worker.start_loads(loads)
        if request.kv_transfer_params["load"] == "async":
            self.wait_received(request.request_id)
        return external

    def wait_received(self, name: str) -> None:
        deadline = time.monotonic() + 10
        while name not in self.worker.finished(set())[1]:
            assert time.monotonic() < deadline
            time.sleep(0.001)

    def kv(self, blocks: list[int], tokens: int) -> torch.Tensor:
        """[L, tokens, 2, H, D] as attention would read it."""
        pages = torch.stack([layer.logical[blocks] for layer in self.layers.values()])
        return pages.transpose(2, 3).flatten(1, 2)[:, :tokens].clone()

    def poison(self, blocks: list[int]) -> None:
        for layer in self.layers.values():
            layer.logical[blocks] = 1e3


def _output(request_id, blocks, computed: int, size: int):
    new = [SimpleNamespace(req_id=request_id, block_ids=(blocks,), num_computed_tokens=computed)] if blocks else []
    cached = SimpleNamespace(req_ids=[], resumed_req_ids=set(), new_block_ids=[], num_computed_tokens=[])
    if request_id and not blocks:
        cached = SimpleNamespace(
            req_ids=[request_id], resumed_req_ids=set(), new_block_ids=[None], num_computed_tokens=[computed]
        )
    return SimpleNamespace(
        scheduled_new_reqs=new, scheduled_cached_reqs=cached, num_scheduled_tokens={request_id: size}
    )


@pytest.mark.parametrize("layout", ["NHD", "HND"])
@pytest.mark.parametrize("settings", SETTINGS, ids=lambda s: "-".join(map(str, s.values())))
def test_what_was_computed_comes_back(tmp_path, layout, settings):
    engine = Engine(tmp_path, layout)
    cold, rerun = engine.request("cold", **settings), engine.request("rerun", **settings)
    blocks, other = [5, 9, 2, 30, 31, 7, 8], [40, 12, 50, 51, 3, 60, 61]
    engine.scheduler.matched(cold, 0)
    engine.compute(cold, blocks, [100])
    expected, untouched = engine.kv(blocks, 96), engine.kv([20, 21], 32)
    engine.poison(other)
    assert engine.load(rerun, other) == 96
    engine.compute(rerun, other, [4], start=96)
    assert torch.equal(engine.kv(other, 96), expected)
    assert torch.equal(engine.kv([20, 21], 32), untouched)
    (row,) = engine.pool.evidence.loads()
    assert row["tokens"] == 96
    assert not row["failed"]
    assert row["places"] == LAYERS
    assert (row["pending_at_forward"] > 0) == (row["blocking_waits"] > 0) == settings["overlap"]
    counters = engine.pool.evidence.counters()
    assert counters["hit_tokens"] == 96
    assert counters["loaded_bytes"] == counters["stored_bytes"] == 96 * LAYERS * 2 * HEADS * DIM * 4


@pytest.mark.parametrize("async_store", [False, True])
@pytest.mark.parametrize("storage_format", ["chunkwise", "layerwise"])
@pytest.mark.parametrize("alone", [False, True], ids=["", "memory for one at a time"])
def test_chunks_that_go_in_lots_come_back(tmp_path, monkeypatch, storage_format, async_store, alone):
    settings = {**SETTINGS[0], "storage_format": storage_format}
    engine = Engine(tmp_path, maru_async_store=async_store)
    stores, lots, kv = engine.worker._stores, [], engine.worker._stores._kv

    def copied(lot):
        if alone and len(lot) > 1:
            raise torch.OutOfMemoryError
        lots.append(len(lot))
        return kv(lot)

    monkeypatch.setattr(stores, "_lot", 2)  # as on a GPU
    monkeypatch.setattr(stores, "_ahead", 1)
    monkeypatch.setattr(stores, "_kv", copied)
    cold, rerun = engine.request("cold", 190, **settings), engine.request("rerun", 190, **settings)
    blocks, other = [5, 9, 2, 30, 31, 7, 8, 11, 10, 13, 15, 14], [40, 12, 50, 51, 3, 60, 61, 62, 45, 44, 47, 46]
    engine.scheduler.matched(cold, 0)
    engine.compute(cold, blocks, [190])
    engine.worker.close()
    assert lots == ([1] * 5 if alone else [2, 2, 1])
    expected = engine.kv(blocks, 160)
    engine.poison(other)
    assert engine.load(rerun, other) == 160
    assert torch.equal(engine.kv(other, 160), expected)
    counters = engine.pool.evidence.counters()
    assert counters["stored_chunks"] == counters["stores_begun"] == 5
    assert counters["stored_bytes"] == 160 * LAYERS * 2 * HEADS * DIM * 4


@pytest.mark.parametrize("storage_format", ["chunkwise", "layerwise"])
def test_chunks_of_several_steps_that_go_in_one_lot_come_back(tmp_path, monkeypatch, storage_format):
    monkeypatch.setattr("e2e.inside.storer._LINGER_S", 60)
    settings = {**SETTINGS[0], "storage_format": storage_format}
    engine = Engine(tmp_path, maru_async_store=True)
    stores, lots, begin = engine.worker._stores, [], engine.worker._stores._begin
    monkeypatch.setattr(stores, "_begin", lambda lot, staged: lots.append(len(lot)) or begin(lot, staged))
    monkeypatch.setattr(stores, "_lot", 4)  # as on a GPU
    monkeypatch.setattr(stores._storer, "_lot", 4)
    cold, rerun = engine.request("cold", 190, **settings), engine.request("rerun", 190, **settings)
    blocks, other = [5, 9, 2, 30, 31, 7, 8, 11, 10, 13, 15, 14], [40, 12, 50, 51, 3, 60, 61, 62, 45, 44, 47, 46]
    engine.scheduler.matched(cold, 0)
    engine.compute(cold, blocks, [64, 64, 62])
    expected = engine.kv(blocks, 160)
    engine.poison(blocks)  # they are another's while it is stored
    engine.worker.settle(30)
    assert lots == [4, 1]
    assert engine.load(rerun, other) == 160
    assert torch.equal(engine.kv(other, 160), expected)


def test_a_load_has_ended_once_its_last_layer_lies_there():
    """Not later: the step that waited for that layer is the one that journals it."""
    job = Job(load=None, slots=torch.empty(0), layers=2, overlap=True, scene=None)
    job.land(0)
    assert not job.finished
    job.land(1)
    assert job.finished


@pytest.mark.parametrize("steps", [[100], [33, 33, 34], [1] * 5 + [95], [31, 1, 68], [96, 4]])
def test_chunks_are_stored_whole_whatever_the_steps(tmp_path, steps):
    settings = SETTINGS[0]
    engine = Engine(tmp_path)
    cold = engine.request("cold", **settings)
    engine.scheduler.matched(cold, 0)
    blocks = [5, 9, 2, 30, 31, 7, 8]
    engine.compute(cold, blocks, steps)
    expected = engine.kv(blocks, 96)
    other = [40, 12, 50, 51, 3, 60, 61]
    assert engine.load(engine.request("rerun", **settings), other) == 96
    assert torch.equal(engine.kv(other, 96), expected)


def test_a_planted_fault_is_told_of_each_output_token_behind_a_load(tmp_path):
    engine, settings = Engine(tmp_path), {**SETTINGS[0], "fault": "spoilt_at_token_3"}
    cold, rerun = (engine.request(name, **settings) for name in ("cold", "rerun"))
    clean = engine.request("clean", **SETTINGS[0])
    engine.scheduler.matched(cold, 0)
    engine.compute(cold, [5, 9, 2, 30, 31, 7, 8], [100, 1])
    assert not engine.scheduler.answering, "nothing was loaded for it"
    for request, told in ((rerun, [[], [2], [3]]), (clean, [[], [], []])):
        engine.load(request, [40, 12, 50, 51, 3, 60, 61])
        for at, (size, tokens) in enumerate(zip((4, 1, 1), told, strict=True)):
            engine.compute(request, [40, 12, 50, 51, 3, 60, 61], [size], start=(96, 100, 101)[at])
            assert [one.token for one in engine.scheduler.answering] == tokens


def test_blocks_that_a_fault_keeps_are_given_back_when_another_cell_comes(tmp_path):
    engine, settings = Engine(tmp_path), {**SETTINGS[0], "cell": "one", "fault": "blocks_kept"}
    kept, after, other = (engine.request(name, **s) for name, s in (
        ("kept", settings), ("after", settings), ("other", {**SETTINGS[0], "cell": "two"})
    ))  # fmt: skip
    engine.scheduler.matched(kept, 0)
    assert engine.scheduler.finished("kept"), "vLLM is told to keep its blocks"
    engine.scheduler.matched(after, 0)
    assert engine.scheduler.let_go() == set()
    engine.scheduler.matched(other, 0)
    assert engine.scheduler.let_go() == {"kept"}
    engine.worker.free({"kept"})
    assert engine.worker.finished(set()) == ({"kept"}, set())
    assert engine.worker.finished(set()) == (set(), set())


def test_the_last_token_is_never_served(tmp_path):
    engine = Engine(tmp_path)
    settings = SETTINGS[0]
    cold = engine.request("cold", 96, **settings)
    engine.scheduler.matched(cold, 0)
    engine.compute(cold, [1, 2, 3, 4, 5, 6], [96])
    assert engine.scheduler.matched(engine.request("again", 96, **settings), 0) == (64, False)
    assert engine.scheduler.matched(engine.request("longer", 97, **settings), 0) == (96, False)
    assert engine.scheduler.matched(engine.request("beyond local", 97, **settings), 48) == (48, False)
    assert engine.scheduler.matched(engine.request("all local", 97, **settings), 96) == (0, False)


def test_forms_cells_and_salts_never_feed_each_other_and_ways_of_loading_do(tmp_path):
    engine = Engine(tmp_path)
    cold = engine.request("cold", **SETTINGS[0])
    engine.scheduler.matched(cold, 0)
    engine.compute(cold, [1, 2, 3, 4, 5, 6, 7], [100])
    for number, settings in enumerate(SETTINGS[1:]):
        served = engine.scheduler.matched(engine.request(f"r{number}", **settings), 0)[0]
        assert served == (96 if settings["storage_format"] == SETTINGS[0]["storage_format"] else 0), settings
    assert engine.scheduler.matched(engine.request("cell", cell="other", **SETTINGS[0]), 0)[0] == 0
    assert engine.scheduler.matched(engine.request("salted", salt="t", **SETTINGS[0]), 0)[0] == 0
    assert engine.scheduler.matched(engine.request("tokens", first=2, **SETTINGS[0]), 0)[0] == 0


@pytest.mark.parametrize("settings", SETTINGS, ids=lambda s: "-".join(map(str, s.values())))
def test_a_torn_object_is_a_reported_failure_and_stored_anew(tmp_path, settings):
    engine = Engine(tmp_path)
    cold = engine.request("cold", **settings)
    engine.scheduler.matched(cold, 0)
    engine.compute(cold, [1, 2, 3, 4, 5, 6, 7], [100])
    engine.pool.memory.bytes[64 * 700] ^= 1
    rerun, blocks = engine.request("rerun", **settings), [40, 41, 42, 43, 44, 45, 46]
    engine.poison(blocks)
    assert engine.load(rerun, blocks) == 96, "the scheduler can't know yet"
    released = settings["overlap"] and settings["storage_format"] == "layerwise"
    if released:
        engine.compute(rerun, blocks, [4], start=96)
    if settings["load"] == "sync":
        engine.worker.end_step()
    assert engine.worker.invalid_blocks() == set(blocks[:6])
    assert engine.worker.invalid_blocks() == set(), "reported once"
    placed = engine.kv(blocks, 96) != 1e3
    assert not placed[3].any(), "of the torn layer nothing was placed"
    assert bool(placed.any()) == released
    assert engine.pool.evidence.counters()["load_failures"] == 1
    engine.compute(rerun, blocks, [100])
    assert engine.scheduler.matched(engine.request("third", **settings), 0)[0] == 96


def test_a_load_that_fails_behind_its_release_is_told_of_until_its_request_is_in_the_step(tmp_path):
    """vLLM takes back what runs, and looks at nothing that waits; and what a step computed beside it is not stored."""
    settings = {"storage_format": "layerwise", "load": "async", "overlap": True, "placement": "index"}
    engine, blocks, others = Engine(tmp_path), [40, 41, 42, 43, 44, 45, 46], [50, 51, 52, 53, 54, 55, 56]
    cold = engine.request("cold", **settings)
    engine.scheduler.matched(cold, 0)
    engine.compute(cold, [1, 2, 3, 4, 5, 6, 7], [100])
    engine.pool.memory.bytes[64 * 700] ^= 1
    rerun, beside = engine.request("rerun", **settings), engine.request("beside", first=500, **settings)
    engine.load(rerun, blocks)
    engine.scheduler.matched(beside, 0)
    engine.compute(beside, others, [96])
    assert engine.worker.invalid_blocks() == set(blocks[:6])
    assert engine.scheduler.matched(engine.request("beside again", first=500, **settings), 0)[0] == 0
    engine.compute(rerun, blocks, [4], start=96)
    assert engine.worker.invalid_blocks() == set(blocks[:6])
    engine.compute(rerun, blocks, [100])
    assert engine.worker.invalid_blocks() == set()
    assert engine.scheduler.matched(engine.request("third", **settings), 0)[0] == 96


def test_a_request_that_ends_after_early_release_keeps_its_blocks(tmp_path):
    settings = {"storage_format": "chunkwise", "load": "async", "overlap": True, "placement": "index"}
    engine = Engine(tmp_path, pace_s=0.5)
    cold = engine.request("cold", **settings)
    engine.scheduler.matched(cold, 0)
    engine.compute(cold, [1, 2, 3, 4, 5, 6, 7], [100])
    aborted = engine.request("aborted", **settings)
    engine.load(aborted, [40, 41, 42, 43, 44, 45, 46])
    assert engine.scheduler.finished("aborted") is True, "vLLM must keep the blocks"
    job = engine.worker._jobs["aborted"]
    assert not job.finished
    deadline = time.monotonic() + 10
    while "aborted" not in (sent := engine.worker.finished({"aborted"})[0]):
        assert time.monotonic() < deadline
    assert sent == {"aborted"}
    assert job.finished, "freed only when the loader had ended"
    assert engine.scheduler.finished("cold") is False


def test_a_full_pool_skips_and_counts(tmp_path):
    engine = Engine(tmp_path, pool_size=64 << 10)
    cold = engine.request("cold", **SETTINGS[0])
    engine.scheduler.matched(cold, 0)
    engine.compute(cold, [1, 2, 3, 4, 5, 6, 7], [100])
    counters = engine.pool.evidence.counters()
    assert counters["store_failures"] > 0
    assert engine.scheduler.matched(engine.request("rerun", **SETTINGS[0]), 0)[0] == 32 * counters.get(
        "stored_chunks", 0
    )


def test_a_bad_request_is_served_without_the_cache(tmp_path):
    engine = Engine(tmp_path)
    assert engine.scheduler.matched(engine.request("bad", placment="kernel"), 0) == (0, False)
    assert engine.pool.evidence.counters()["refused_requests"] == 1


COLD, OTHER = [1, 2, 3, 4, 5, 6, 7, 8, 9], [40, 41, 42, 43, 44, 45, 46, 47, 48]


def _stored(engine, tokens: int = 100, *, seed_of: int = 1, name: str = "cold", blocks=COLD) -> torch.Tensor:
    """Computes and stores a prompt; the KV of its whole chunks."""
    request = engine.request(name, tokens, first=seed_of, **SETTINGS[0])
    engine.scheduler.matched(request, 0)
    engine.compute(request, blocks, [tokens])
    engine.scheduler.finished(name)
    return engine.kv(blocks, tokens // CHUNK * CHUNK)


def _resumed(request_id: str, blocks: list[int], computed: int, size: int):
    cached = SimpleNamespace(
        req_ids=[request_id], resumed_req_ids={request_id}, new_block_ids=[(blocks,)], num_computed_tokens=[computed]
    )
    return SimpleNamespace(scheduled_new_reqs=[], scheduled_cached_reqs=cached, num_scheduled_tokens={request_id: size})


@pytest.mark.parametrize("output", [_output, _resumed], ids=["as a new one", "as resumed"])
def test_a_request_that_comes_back_loads_what_it_stored_into_its_new_blocks(tmp_path, output):
    """Part of it lies in vLLM's own cache still; newer runners take it for a new request."""
    engine = Engine(tmp_path)
    request = engine.request("one", **SETTINGS[0])
    engine.scheduler.matched(request, 0)
    engine.compute(request, COLD, [100])
    expected = engine.kv(COLD, 96)
    assert engine.scheduler.matched(request, 16) == (80, False)
    engine.scheduler.allocated(request, OTHER, 80)
    before = engine.kv(OTHER[:1], 16)
    loads, stores = engine.scheduler.step(output("one", OTHER, 96, 4))
    assert not stores
    engine.worker.start_loads(loads)
    assert torch.equal(engine.kv(OTHER, 96)[:, 16:], expected[:, 16:])
    assert torch.equal(engine.kv(OTHER[:1], 16), before), "of which vLLM says that it is there"
    assert engine.scheduler.matched(engine.request("next", **SETTINGS[0]), 0) == (96, False), "nothing was forgotten"


@pytest.mark.parametrize("output", [_output, _resumed], ids=["as a new one", "as resumed"])
def test_what_a_request_stored_stays_when_it_comes_back_and_computes_anew(tmp_path, output):
    """No load of it failed, so what it stored is right."""
    engine = Engine(tmp_path)
    request = engine.request("one", **SETTINGS[0])
    engine.scheduler.matched(request, 0)
    engine.compute(request, COLD, [100])
    _, stores = engine.scheduler.step(output("one", OTHER, 0, 100))
    assert not stores
    assert engine.scheduler.matched(engine.request("next", **SETTINGS[0]), 0) == (96, False)


def test_engines_of_two_layouts_share_a_pool_and_not_their_evidence(tmp_path):
    index = index_of(1 << 24)
    one = Engine(tmp_path, "NHD", index=index, name="one")
    other = Engine(tmp_path, "HND", index=index, name="other")
    expected = _stored(one)
    other.poison(OTHER)
    assert other.load(other.request("rerun", **SETTINGS[0]), OTHER) == 96
    assert torch.equal(other.kv(OTHER, 96), expected)
    assert (one.pool.evidence.counters().get("loads"), other.pool.evidence.counters()["loads"]) == (None, 1)
    assert [row["request"] for row in other.pool.evidence.loads()] == ["rerun"]
    assert one.pool.evidence.loads() == []


def test_what_a_step_computes_from_a_failed_load_is_never_stored(tmp_path):
    """A step that loads and computes on: the load fails, so the chunk that the step completes is made of garbage."""
    engine = Engine(tmp_path)
    _stored(engine)
    engine.pool.memory.bytes[64 * 700] ^= 1
    longer = engine.request("longer", 140, **SETTINGS[0])
    assert engine.scheduler.matched(longer, 0) == (96, False)
    engine.scheduler.allocated(longer, OTHER, 96)
    engine.poison(OTHER)
    engine.compute(longer, OTHER, [44], start=96)
    assert engine.worker.invalid_blocks() == set(OTHER[:6])
    fourth = engine.scheduler._requests["longer"].keys[3:4]
    assert engine.scheduler._there(fourth) == [False]
    loads, stores = engine.scheduler.step(_output("longer", None, 0, 140))
    assert (loads, [store.chunk for store in stores]) == ([], [0, 1, 2, 3]), "recomputed, and stored anew"


def test_shares_of_several_ranks_count_only_when_one_step_wrote_them(tmp_path):
    engine = Engine(tmp_path, ranks=2)
    engine.pool.put("k@0", "step 1", [("k@0", filled(1, 16))])
    assert engine.scheduler._there(["k"]) == [False]
    engine.pool.put("k@1", "step 2", [("k@1", filled(1, 16))])
    assert engine.scheduler._there(["k"]) == [False]
    engine.pool.put("k@0", "step 2", [("k@0", filled(1, 16))])
    assert engine.scheduler._there(["k"]) == [True]


def _gives_room(when: threading.Event) -> Callable[[p.AnyRequest], object]:
    index = index_of(1 << 24)

    def waits(request):
        if isinstance(request, p.Reserve):
            when.wait(30)
        return index(request)

    return waits


def test_a_store_may_be_under_way_when_its_request_has_ended_and_its_blocks_are_anothers(tmp_path):
    begins = threading.Event()
    engine = Engine(tmp_path, index=_gives_room(begins), maru_async_store=True)
    expected = _stored(engine)
    engine.poison(COLD)
    assert engine.scheduler.matched(engine.request("at once", **SETTINGS[0]), 0) == (0, False)
    begins.set()
    engine.worker.close()
    assert engine.load(engine.request("rerun", **SETTINGS[0]), OTHER) == 96
    assert torch.equal(engine.kv(OTHER, 96), expected)


@pytest.mark.parametrize(("more", "waits_for_it"), [({}, True), ({"embedded_slow_s": 0.001}, False)])
def test_who_asks_what_happened_waits_for_stores_but_for_those_that_are_to_be_met_under_way(
    tmp_path, more, waits_for_it
):  # fmt: skip
    begins = threading.Event()
    engine = Engine(tmp_path, index=_gives_room(begins), maru_async_store=True, **more)
    _stored(engine)
    settled = threading.Thread(target=engine.worker.settle, args=[30], daemon=True)
    settled.start()
    settled.join(0.2 if waits_for_it else 10)
    assert settled.is_alive() is waits_for_it
    assert engine.worker.stores_under_way("cold")
    engine.worker.settle(0.01)
    begins.set()
    settled.join(10)
    assert not settled.is_alive()
    engine.worker.close()
    assert engine.scheduler.matched(engine.request("rerun", **SETTINGS[0]), 0)[0] == 96


def test_no_step_but_the_first_asks_the_index_what_is_there(tmp_path):
    asked = []
    index = index_of(1 << 24)

    def counts(request):
        asked.append(type(request))
        return index(request)

    engine = Engine(tmp_path, index=counts)
    cold = engine.request("cold", 200, **SETTINGS[0])
    engine.scheduler.matched(cold, 0)
    asked.clear()
    engine.compute(cold, [*range(1, 14)], [40] * 5)
    assert asked.count(p.Find) == 1
    cold.output = [*range(40)]  # two chunks more are known now
    engine.compute(cold, [*range(1, 16)], [20, 20], start=200)
    assert asked.count(p.Find) == 2
    assert engine.pool.evidence.counters()["stored_chunks"] == 7


def test_what_is_there_already_is_not_stored_again_and_what_lacks_is(tmp_path):
    engine = Engine(tmp_path)
    _stored(engine)
    longer = engine.request("longer", 200, **SETTINGS[0])
    engine.scheduler.matched(longer, 0)
    engine.compute(longer, [*range(1, 14)], [50] * 4)
    assert engine.pool.evidence.counters()["stored_chunks"] == 6, "three of the shorter, and the rest of the longer"


def test_a_pool_that_holds_one_prompt_evicts_the_older_and_serves_the_newer(tmp_path):
    one_prompt = 3 * CHUNK * LAYERS * 2 * HEADS * DIM * 4
    engine = Engine(tmp_path, pool_size=one_prompt, embedded_evict=True)
    _stored(engine)
    expected = _stored(engine, seed_of=1000, name="newer", blocks=OTHER)
    assert engine.scheduler.matched(engine.request("older", **SETTINGS[0]), 0) == (0, False)
    assert engine.load(engine.request("rerun", first=1000, **SETTINGS[0]), COLD) == 96
    assert torch.equal(engine.kv(COLD, 96), expected)
    assert engine.pool.evidence.counters().get("store_failures") is None


def test_what_a_request_is_to_load_is_not_evicted_until_it_is_read(tmp_path):
    one_prompt = 3 * CHUNK * LAYERS * 2 * HEADS * DIM * 4
    engine = Engine(tmp_path, pool_size=one_prompt, embedded_evict=True)
    expected = _stored(engine)
    rerun = engine.request("rerun", **SETTINGS[0])
    assert engine.scheduler.matched(rerun, 0) == (96, False)
    _stored(engine, seed_of=1000, name="newer", blocks=OTHER)
    assert engine.pool.evidence.counters()["no_room"] == 3
    assert engine.load(rerun, COLD) == 96
    assert torch.equal(engine.kv(COLD, 96), expected)
    engine.scheduler.step(_output(None, None, 0, 0))
    _stored(engine, seed_of=1000, name="newest", blocks=OTHER)
    assert engine.scheduler.matched(engine.request("last", first=1000, **SETTINGS[0]), 0) == (96, False)


@pytest.mark.parametrize(
    "differs",
    [
        {"lora_request": SimpleNamespace(lora_name="a", lora_path="/nowhere")},
        {"cache_salt": "other"},
        {"prompt_token_ids": [0, *range(2, 101)]},
        {"mm_features": ["an image"]},
        {"prompt_embeds": torch.ones(1)},
    ],
    ids=lambda differs: next(iter(differs)),
)
def test_what_differs_in_more_than_its_tokens_is_never_served(tmp_path, differs):
    engine = Engine(tmp_path)
    _stored(engine)
    request = engine.request("other", **SETTINGS[0])
    assert engine.scheduler.matched(engine.request("same", **SETTINGS[0]), 0) == (96, False)
    for name, value in differs.items():
        setattr(request, name, value)
    assert engine.scheduler.matched(request, 0) == (0, False)


DIFFERS = {
    "salt_not_in_key": {"cache_salt": "other"},
    "lora_not_in_key": {"lora_request": SimpleNamespace(lora_name="a", lora_path="/nowhere")},
    "weights_not_in_key": {"model": "another"},
    "dtype_not_in_key": {"dtype": "float16"},
}


@pytest.mark.parametrize("fault", ["", *DIFFERS])
@pytest.mark.parametrize("differs", DIFFERS)
def test_an_identity_that_is_not_in_the_key_is_served_to_another_one_alone(tmp_path, fault, differs):
    index, asked = index_of(1 << 24), {"fault": fault, **SETTINGS[0]}
    space = {"model": "m", "weights": [], "dtype": "bfloat16", "kv_dtype": "auto"}
    engines = [
        Engine(tmp_path, index=index, name=name, space=space | more)
        for name, more in (("one", {}), ("other", {k: v for k, v in DIFFERS[differs].items() if k in space}))
    ]
    cold = engines[0].request("cold", **asked)
    engines[0].scheduler.matched(cold, 0)
    engines[0].compute(cold, COLD, [100])
    request = engines[1].request("other", **asked)
    for name, value in DIFFERS[differs].items():
        setattr(request, name, value)
    assert engines[1].scheduler.matched(request, 0)[0] == (96 if fault == differs else 0)
    assert engines[0].scheduler.matched(engines[0].request("same", **asked), 0)[0] == 96
    counted = engines[0].pool.evidence.counters()
    assert counted.get(f"fired:{fault}", 0) == (2 if fault else 0), "with every key, also where nobody else asks"


def test_chunks_of_two_sizes_never_feed_each_other(tmp_path):
    """Both end at the same token, so they have the same prefix."""
    index = index_of(1 << 24)
    small = Engine(tmp_path, index=index)
    _stored(small)
    large = Engine(tmp_path, index=index, name="large", maru_kv_chunk_tokens=2 * CHUNK)
    assert large.scheduler.matched(large.request("rerun", **SETTINGS[0]), 0) == (0, False)
