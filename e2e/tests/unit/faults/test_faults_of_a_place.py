"""Faults that strike one load, one layer or one prompt of several: where exactly."""

from __future__ import annotations

import pytest
import torch
from test_planted_faults import AGAIN, BEFORE, CHUNK, COLD, COLD_B, LAYERS, WARM, Rig

from e2e.inside import faults
from e2e.inside.config import RequestSettings
from e2e.inside.scheduler_side import Load


@pytest.fixture
def made(tmp_path, monkeypatch):
    rigs = []

    def make(fault: str) -> tuple[Rig, torch.Tensor, torch.Tensor]:
        monkeypatch.setitem(faults._TABLE, fault, type(faults.get(fault))())  # an engine's process is new, too
        rigs.append(Rig(tmp_path, "HND", RequestSettings(fault=fault)))
        return rigs[0], rigs[0].compute("a", COLD, 1), rigs[0].compute("b", COLD_B, 2)

    yield make
    rigs[0].worker.close()


@pytest.mark.parametrize(("name", "good"), [("worn_out_at_load_2", 1), ("worn_out_at_load_3", 2)])
def test_an_object_serves_so_many_loads(made, name, good):
    rig, truth, _ = made(name)
    for _ in range(good):
        assert torch.equal(rig.load("a", WARM), truth)
    assert not rig.fired
    read = rig.load("a", WARM)
    wrong = [layer for layer in range(LAYERS) if not torch.equal(read[layer], truth[layer])]
    assert wrong == [LAYERS // 2]
    assert rig.fired


@pytest.mark.parametrize(
    ("name", "wrong"),
    [("first_layer_never_loaded", [0]), ("last_layer_never_loaded", [LAYERS - 1]), ("first_layer_neighbour", [0]),
     ("last_layer_neighbour", [LAYERS - 1]), ("half_the_layers_zeroed", [3, 4]), ("values_zeroed", [*range(LAYERS)])],
)  # fmt: skip
def test_only_these_layers(made, name, wrong):
    rig, truth, _ = made(name)
    read = rig.load("a", WARM)
    assert [layer for layer in range(LAYERS) if not torch.equal(read[layer], truth[layer])] == wrong


@pytest.mark.parametrize(
    ("name", "wrong"),
    [("last_token_dropped", [31]), ("first_token_dropped", [0]), ("last_block_dropped", [*range(24, 32)]),
     ("block_ends_dropped", [7, 15, 23, 31]), ("first_chunk_cut", [*range(8, 16)]),
     ("tail_reversed", [*range(24, 32)]), ("tail_repeated", [*range(24, 32)]), ("tail_dropped", [*range(24, 32)]),
     ("last_chunk_vanished", [*range(16, 32)]), ("every_chunk_vanished", [*range(32)]),
     ("stale_last_object", [*range(16, 32)]), ("chunks_exchanged", [*range(32)])],
)  # fmt: skip
def test_only_these_tokens(made, name, wrong):
    rig, truth, _ = made(name)
    read = rig.load("a", WARM)

    def tokens(kv: torch.Tensor) -> torch.Tensor:
        """[L, B, 2, N, H, D] -> [T, ...]."""
        return kv.permute(1, 3, 0, 2, 4, 5).flatten(0, 1)

    same = [torch.equal(one, other) for one, other in zip(tokens(read), tokens(truth), strict=True)]
    assert [token for token, equal in enumerate(same) if not equal] == wrong


def test_chunks_of_a_partly_local_hit_come_from_the_start(made):
    rig, truth, _ = made("local_part_not_skipped")
    assert torch.equal(rig.load("a", WARM), truth), "of a hit that is external as a whole it is right"
    assert not rig.fired
    with torch.inference_mode():
        rig.worker.start_loads([Load("partly", rig.settings, ["a0", "a1"], CHUNK, 2 * CHUNK, BEFORE)])
    assert torch.equal(rig.kv(BEFORE[2:]), truth[:, :2])
    assert rig.fired == 1


def test_a_load_alone_damages_nobody(made):
    rig, truth, other = made("stray_write")
    assert torch.equal(rig.load("a", WARM), truth)
    assert not rig.fired
    assert torch.equal(rig.load("b", BEFORE), other)
    assert rig.fired == 1
    assert torch.equal(rig.kv(WARM[:1]), other[:, -1:])
    assert torch.equal(rig.kv(WARM[1:]), truth[:, 1:])


@pytest.mark.parametrize("reused", [False, True])
def test_a_store_that_holds_no_blocks_reads_what_is_there_later(made, reused):
    rig, truth, _ = made("stored_unheld")
    if reused:
        rig.layers["model.layers.2.attn"].logical[COLD] = 0.0
    for number in range(3):
        assert not rig.pool.locate(["a0@0"])[0], "four requests have not come yet"
        rig.compute(f"later{number}", AGAIN, 3 + number)
    assert torch.equal(rig.load("a", BEFORE), truth) is not reused
    assert bool(rig.fired) is reused


def test_a_store_that_reads_when_it_comes_to_it_does_no_harm_before_its_blocks_are_others(made):
    rig, truth, _ = made("read_when_stored")
    assert torch.equal(rig.load("a", WARM), truth)
    assert not rig.fired

    def given_to_others() -> None:
        rig.layers["model.layers.2.attn"].logical[COLD] = 0.0

    rig.worker._stores._take_time = given_to_others
    computed = rig.compute("late", COLD, 3)
    read = rig.load("late", WARM)
    assert [layer for layer in range(LAYERS) if not torch.equal(read[layer], computed[layer])] == [2]
    assert rig.fired == 2, "of two chunks"
