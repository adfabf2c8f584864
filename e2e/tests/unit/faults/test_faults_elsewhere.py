"""Faults that right themselves on the engine that stored: they fire there and spoil nothing, and another engine is
spoilt."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from test_planted_faults import CELLS, COLD, WARM, Rig

from e2e.inside import faults
from e2e.inside.config import RequestSettings

#: Fault -> what the other engine has otherwise.
OTHERWISE = {
    "region_not_kept": {},
    "layout_not_in_key": {"layout": True},
    "heads_permuted_both_ways": {"placement": True},
}


@pytest.fixture
def engine(tmp_path, monkeypatch):
    """Engines on one pool, each with a memory of its own."""
    made = []

    def start(name: str, layout: str, settings: RequestSettings) -> Rig:
        monkeypatch.setitem(faults._TABLE, name, type(faults.get(name))())
        made.append(Rig(tmp_path, layout, replace(settings, fault=name), pool=made[0].pool if made else None))
        return made[-1]

    yield start
    for one in made:
        one.worker.close()


@pytest.mark.parametrize(("layout", "settings"), CELLS)
@pytest.mark.parametrize("name", OTHERWISE)
def test_it_spoils_nothing_on_its_own_engine_and_another_one(engine, name, layout, settings):
    one = engine(name, layout, settings)
    truth = one.compute("a", COLD, 1)
    assert torch.equal(one.load("a", WARM), truth)
    acts = one.fired > 0
    told = OTHERWISE[name]
    other = engine(
        name,
        {"NHD": "HND", "HND": "NHD"}[layout] if "layout" in told else layout,
        replace(settings, placement="kernel" if settings.placement == "index" else "index")
        if "placement" in told else settings,
    )  # fmt: skip
    assert acts is (
        name == "region_not_kept"
        or (name == "layout_not_in_key" and layout == "HND")
        or (name == "heads_permuted_both_ways" and settings.placement == "index")
    )
    assert not torch.equal(other.load("a", WARM), truth)
    assert not [load for load in one.pool.evidence.loads() if load["failed"]]
