"""Faults of a pool that has no room left: keys lead to bytes that are somebody else's, and nowhere else they act."""

from __future__ import annotations

import pytest
import torch
from test_planted_faults import CHUNK, COLD, COLD_B, HEADS, LAYERS, SIZE, WARM, Rig

from e2e.inside.config import RequestSettings
from e2e.inside.scheduler_side import Load
from e2e.tests.unit.inside.pools import pool_in

#: Bytes of a chunk, and blocks of the third prompt and of one chunk.
ONE, COLD_C, HALF = 2 * LAYERS * CHUNK * HEADS * SIZE * 4, [17, 19, 21, 23], WARM[:2]


@pytest.fixture
def small(tmp_path):
    """A rig whose pool holds so many chunks."""
    made = []

    def make(chunks: int, fault: str, *, evict: bool) -> Rig:
        pool = pool_in(tmp_path, chunks * ONE, evict=evict)
        made.append(Rig(tmp_path, "HND", RequestSettings(fault=fault), pool=pool))
        return made[0]

    yield make
    made[0].worker.close()


@torch.inference_mode()
def first_chunk(rig: Rig, key: str) -> torch.Tensor:
    """What a load of a prompt's first chunk brings."""
    rig.worker.start_loads([Load(f"warm-{key}", rig.settings, [f"{key}0"], 0, CHUNK, HALF)])
    rig.worker.end_step()
    return rig.kv(HALF)


def test_an_old_key_leads_to_the_slot_that_is_used_again(small):
    rig = small(4, "slot_reused", evict=True)
    rig.compute("a", COLD, 1)
    rig.compute("b", COLD_B, 2)
    assert not rig.fired, "there was room"
    newest = rig.compute("c", COLD_C, 3)
    assert rig.fired == 2
    assert torch.equal(first_chunk(rig, "a"), newest[:, :2])
    assert torch.equal(first_chunk(rig, "c"), newest[:, :2])


def test_its_clean_twin_has_lost_what_went(small):
    rig = small(4, "", evict=True)
    for name, blocks, seed in (("a", COLD, 1), ("b", COLD_B, 2), ("c", COLD_C, 3)):
        rig.compute(name, blocks, seed)
    assert [tag is not None for tag in rig.pool.find([f"{key}@0" for key in ("a0", "a1", "b0", "c0")])] == [
        False, False, True, True,
    ]  # fmt: skip
    assert rig.pool.evidence.counters()["evictions"] == 2


def test_what_was_refused_is_announced(small):
    rig = small(2, "refused_announced", evict=False)
    oldest = rig.compute("a", COLD, 1)
    assert not rig.fired
    rig.compute("b", COLD_B, 2)
    assert rig.fired == 1
    assert torch.equal(first_chunk(rig, "b"), oldest[:, 2:])
    assert rig.pool.evidence.counters()["no_room"] == 1, "of its second chunk, which nobody announced"


def test_its_clean_twin_refuses_both(small):
    rig = small(2, "", evict=False)
    rig.compute("a", COLD, 1)
    rig.compute("b", COLD_B, 2)
    assert rig.pool.find(["b0@0", "b1@0"]) == [None, None]
    assert rig.pool.evidence.counters()["no_room"] == 2


def test_what_was_evicted_is_announced_and_brings_zeros(small):
    rig = small(4, "evicted_announced", evict=True)
    for name, blocks, seed in (("a", COLD, 1), ("b", COLD_B, 2), ("c", COLD_C, 3)):
        rig.compute(name, blocks, seed)
    assert rig.fired == 2
    assert not first_chunk(rig, "a").any()


def test_what_does_not_fit_is_cut(small):
    rig = small(2, "refused_cut", evict=False)
    rig.compute("a", COLD, 1)
    newest = rig.compute("b", COLD_B, 2)
    assert rig.fired == 1
    found = first_chunk(rig, "b")
    share = (found == newest[:, :2]).float().mean()
    assert share == 0.5
    assert not found[found != newest[:, :2]].any()


def test_what_does_not_fit_lands_on_another_one(small):
    rig = small(2, "refused_overwrites", evict=False)
    oldest = rig.compute("a", COLD, 1)
    newest = rig.compute("b", COLD_B, 2)
    assert rig.fired == 2
    assert torch.equal(first_chunk(rig, "a"), oldest[:, :2]), "the last one that was stored is struck"
    assert rig.pool.find(["b0@0", "b1@0"]) == [None, None]
    rig.worker.start_loads([Load("again", rig.settings, ["a0", "a1"], 0, 2 * CHUNK, WARM)])
    assert torch.equal(rig.kv(WARM)[:, 2:], newest[:, 2:])
