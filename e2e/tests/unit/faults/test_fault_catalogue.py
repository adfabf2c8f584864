"""Both halves of the list of faults agree, and the catalogue says where a fault can act."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from e2e.base.cell import Cell
from e2e.base.errors import SettingsError
from e2e.faults.catalogue import FAULTS, find
from e2e.faults.info import KINDS, Shape
from e2e.inside import faults as planted
from e2e.inside.config import RequestSettings
from e2e.judge.classify import PATTERNS
from e2e.report.scoreboard import CHECKS
from e2e.scenarios.table import SCENARIOS

SHAPE = Shape(packed=True, kv_heads=3, layers=30, block_size=16, chunk_tokens=256, served_chunks=4, prompts=3)


def cell(**settings) -> Cell:
    return Cell({"layout": "NHD", "storage_format": "chunkwise", "overlap": "off", "placement": "index", **settings})


def test_the_engine_and_the_rig_name_the_same_faults():
    assert set(FAULTS) == set(planted.NAMES)
    assert {name for name, fault in FAULTS.items() if fault.around_any} == set(planted.AROUND_ANY)


def test_every_fault_says_what_it_is_and_how_it_is_located():
    assert len(FAULTS) >= 18
    for name, fault in FAULTS.items():
        assert fault.name == name
        assert fault.kind in KINDS
        assert {*fault.checks} <= {*CHECKS}
        assert fault.what
        assert fault.stands_for
        assert fault.patterns
        assert set(fault.patterns) <= set(PATTERNS)
        assert (planted.get(name).__doc__ or "").strip()


@pytest.mark.parametrize("name", FAULTS)
def test_every_fault_applies_to_some_cell_of_the_default_grid_in_some_scenario(name):
    shape = replace(SHAPE, kv_heads=6, answer=16)
    grid = itertools.product(("NHD", "HND"), ("off", "on"), ("index", "kernel"), SCENARIOS, (1, 2))
    axes = ("layout", "overlap", "placement", "scenario", "tensor_parallel")
    reasons = [find(name).why_not(cell(**dict(zip(axes, values, strict=True))), shape) for values in grid]
    assert None in reasons
    assert all(reason is None or reason.endswith(".") for reason in reasons)


KERNEL = {"placement": "kernel", "overlap": "on"}


@pytest.mark.parametrize(
    ("name", "settings", "shape", "applies"),
    [
        ("physical_view_omitted", KERNEL, {}, True),
        ("physical_view_omitted", {**KERNEL, "overlap": "off"}, {}, False),
        ("physical_view_omitted", {**KERNEL, "layout": "HND"}, {}, False),
        ("physical_view_omitted", {**KERNEL, "layout": "HND"}, {"packed": False}, True),
        ("physical_view_omitted", KERNEL, {"kv_heads": 16}, False),
        ("token_first_view", {**KERNEL, "layout": "HND"}, {}, True),
        ("write_into_copy", {"layout": "HND"}, {}, False),
        ("write_into_copy", {"layout": "HND"}, {"packed": False}, True),
        ("heads_permuted", {}, {"kv_heads": 1}, False),
        ("one_chunk_off", {}, {"served_chunks": 1}, False),
        ("stale_object", {}, {"prompts": 1}, False),
        ("overlap_not_waited", {"overlap": "on"}, {}, True),
        ("overlap_not_waited", {}, {}, False),
    ],
)
def test_where_a_fault_applies(name, settings, shape, applies):
    known = Shape(**{**SHAPE.__dict__, **shape})
    assert (find(name).why_not(cell(**settings), known) is None) is applies


def test_an_unknown_fault_is_refused_on_both_sides():
    with pytest.raises(SettingsError, match="did you mean bit_flip"):
        find("bit_flp")
    with pytest.raises(ValueError, match="is unknown"):
        RequestSettings(fault="bit_flp")
    with pytest.raises(ValueError, match="is unknown"):
        RequestSettings().override({"fault": "nothing of the kind"})
