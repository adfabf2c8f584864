"""Faults of a rank take another one's share, or strike the last of several; one rank alone they leave in peace."""

from __future__ import annotations

import pytest
import torch
from test_planted_faults import BLOCK, BLOCKS, CHUNK, COLD, COLD_B, WARM, Rig

from e2e.faults.catalogue import FAULTS
from e2e.inside.config import EmbeddedConfig, RequestSettings
from e2e.inside.worker_side import WorkerSide

NAMES = [name for name, fault in FAULTS.items() if fault.kind == "rank"]


@pytest.fixture
def ranks(tmp_path):
    """``make(fault, ranks)``: worker halves of so many ranks over one pool, and what each computed of one prompt."""
    made = []

    def make(fault: str, number: int) -> list[tuple[Rig, torch.Tensor]]:
        settings = RequestSettings(fault=fault)
        first = Rig(tmp_path, "HND", settings)
        made.append(first)
        for rank in range(number):
            one = first if rank == 0 else Rig(tmp_path, "HND", settings, pool=first.pool)
            one.worker.close()
            config = EmbeddedConfig(str(tmp_path), "", 1 << 22, CHUNK, 0.05, settings, ())
            one.worker = WorkerSide(config, first.pool, one.layers, block_size=BLOCK, rank=rank, ranks=number)
            if rank:
                made.append(one)
        truth = [one.compute("a", COLD, 10 + rank) for rank, one in enumerate(made)]
        for rank, one in enumerate(made):
            one.compute("b", COLD_B, 20 + rank)
        return list(zip(made, truth, strict=True))

    yield make
    for one in made:
        one.worker.close()


@pytest.mark.parametrize("name", NAMES)
def test_the_last_of_two_ranks_loads_something_else(ranks, name):
    (first, whole), (last, truth) = ranks(name, 2)
    assert not torch.equal(last.load("a", WARM), truth)
    assert last.fired == 1
    assert torch.equal(first.load("a", WARM), whole) is (name != "other_ranks_share")


@pytest.mark.parametrize("name", NAMES)
def test_one_rank_alone_is_left_in_peace(ranks, name):
    ((only, truth),) = ranks(name, 1)
    assert torch.equal(only.load("a", WARM), truth)
    assert not only.fired


def test_the_share_is_that_of_the_rank_that_is_meant(ranks):
    (_, of_first), (last, _) = ranks("first_ranks_share", 2)
    assert torch.equal(last.load("a", WARM), of_first)


@pytest.mark.parametrize("name", NAMES)
def test_nothing_else_is_written(ranks, name):
    _, (last, _) = ranks(name, 2)
    elsewhere = [block for block in range(BLOCKS) if block not in WARM]
    before = last.kv(elsewhere)
    last.load("a", WARM)
    assert torch.equal(last.kv(elsewhere), before)
