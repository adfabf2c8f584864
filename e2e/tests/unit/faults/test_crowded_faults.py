"""Faults that need company: they strike where several loads share a step, or a request comes back, and nowhere else."""

from __future__ import annotations

import pytest
import torch
from test_planted_faults import BLOCKS, CHUNK, COLD, COLD_B, WARM, Rig

from e2e.inside.config import RequestSettings
from e2e.inside.scheduler_side import Load

WARM_B = [31, 33, 35, 37]
RESUMED = [13, 16, 14, 17]


@pytest.fixture
def made(tmp_path):
    """A rig with a fault, and what it computed of two prompts."""
    rigs = []

    def make(fault: str) -> tuple[Rig, torch.Tensor, torch.Tensor]:
        rigs.append(Rig(tmp_path, "HND", RequestSettings(fault=fault)))
        return rigs[0], rigs[0].compute("a", COLD, 1), rigs[0].compute("b", COLD_B, 2)

    yield make
    rigs[0].worker.close()


@torch.inference_mode()
def step(rig: Rig, *loads: tuple[str, str, list[int]]) -> None:
    """One step that begins these loads: request, key of its prompt, blocks."""
    rig.worker.start_loads(
        [Load(request, rig.settings, [f"{key}0", f"{key}1"], 0, 2 * CHUNK, blocks) for request, key, blocks in loads]
    )
    rig.worker.end_step()


def test_loads_of_one_step_are_exchanged(made):
    rig, a, b = made("loads_exchanged")
    step(rig, ("one", "a", WARM), ("two", "b", WARM_B))
    assert torch.equal(rig.kv(WARM), b)
    assert torch.equal(rig.kv(WARM_B), a)
    assert rig.fired == 1


def test_a_load_alone_has_nobody_to_exchange_with(made):
    rig, a, b = made("loads_exchanged")
    step(rig, ("one", "a", WARM))
    step(rig, ("two", "b", WARM_B))
    assert torch.equal(rig.kv(WARM), a)
    assert torch.equal(rig.kv(WARM_B), b)
    assert not rig.fired


def test_a_resumed_request_loads_into_its_former_blocks(made):
    rig, a, _ = made("former_blocks")
    step(rig, ("one", "a", WARM))
    before = rig.kv(RESUMED)
    rig.layers["model.layers.2.attn"].logical[WARM] = 0.0
    step(rig, ("one", "a", RESUMED))
    assert torch.equal(rig.kv(RESUMED), before), "nothing arrived where it is read"
    assert torch.equal(rig.kv(WARM), a), "but where others may be by now"
    assert rig.fired == 1


def test_of_the_loads_of_a_step_only_the_first_is_done(made):
    rig, a, _ = made("loads_dropped")
    before = rig.kv(WARM_B)
    step(rig, ("one", "a", WARM), ("two", "b", WARM_B))
    assert torch.equal(rig.kv(WARM), a)
    assert torch.equal(rig.kv(WARM_B), before)
    assert not [load for load in rig.pool.evidence.loads() if load["failed"]]
    assert rig.fired == 1


def test_a_resumed_request_is_taken_for_loaded(made):
    rig, a, b = made("resumed_not_loaded")
    step(rig, ("one", "a", WARM))
    before = rig.kv(RESUMED)
    step(rig, ("one", "a", RESUMED), ("two", "b", WARM_B))
    assert torch.equal(rig.kv(WARM), a)
    assert torch.equal(rig.kv(RESUMED), before)
    assert torch.equal(rig.kv(WARM_B), b), "which did not come back"
    assert rig.fired == 1


def test_other_requests_have_no_former_blocks(made):
    rig, a, b = made("former_blocks")
    step(rig, ("one", "a", WARM), ("two", "b", WARM_B))
    step(rig, ("three", "a", RESUMED))
    assert torch.equal(rig.kv(RESUMED), a)
    assert torch.equal(rig.kv(WARM_B), b)
    assert not rig.fired


@pytest.mark.parametrize("fault", ["loads_exchanged", "former_blocks", "loads_dropped", "resumed_not_loaded"])
def test_they_stay_inside_the_blocks_of_their_requests(made, fault):
    rig, _, _ = made(fault)
    elsewhere = [block for block in range(BLOCKS) if block not in {*WARM, *WARM_B, *RESUMED}]
    before = rig.kv(elsewhere)
    step(rig, ("one", "a", WARM), ("two", "b", WARM_B))
    step(rig, ("one", "a", RESUMED))
    assert torch.equal(rig.kv(elsewhere), before)
    assert rig.fired == 1
