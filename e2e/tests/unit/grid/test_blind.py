import pytest

from e2e.base.connector import HitRule
from e2e.grid.blind import Geometry, guard

SMOLLM = Geometry(kv_heads=3, layers=30, block_size=16)
CHUNKED = HitRule(256, 1)


def classes(geometry=SMOLLM, rule=CHUNKED, lengths=(513, 1033), digests=True):
    found = guard(geometry, rule, lengths, digests=digests)
    assert all(entry["why"] for entry in found)
    return {entry["fault_class"] for entry in found}


def test_default_cell_sees_everything():
    assert classes() == set()


@pytest.mark.parametrize(
    ("geometry", "blind"),
    [
        (Geometry(16, 30, 16), {"axes swapped"}),
        (Geometry(1, 30, 16), {"axes swapped", "heads permuted"}),
        (Geometry(2, 30, 16), {"K/V axis mistaken"}),
        (Geometry(3, 30, 1), {"axes swapped"}),
        (Geometry(3, 1, 16), {"neighbour layer"}),
    ],
)
def test_degenerate_shapes(geometry, blind):
    assert classes(geometry) == blind


@pytest.mark.parametrize(
    ("lengths", "rule", "blind"),
    [
        ((300,), CHUNKED, {"chunks mixed up"}),
        ((300, 1033), CHUNKED, set()),
        ((256,), HitRule(256, 0), {"chunks mixed up", "tail rule"}),
        ((33,), HitRule(16, 1), {"blocks mixed up"}),
        ((17,), HitRule(16, 1), {"blocks mixed up", "chunks mixed up"}),
        ((10,), CHUNKED, {"blocks mixed up", "chunks mixed up"}),
        ((513,), HitRule(1, 1), set()),
    ],
)
def test_short_prompts(lengths, rule, blind):
    assert classes(lengths=lengths, rule=rule) == blind


def test_checks_that_are_off():
    assert classes(digests=False) == {"bytes without effect"}
