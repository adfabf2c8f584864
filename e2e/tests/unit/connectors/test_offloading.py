"""What vLLM's OffloadingConnector serves, as counted on an H200 (vLLM 0.23.0, blocks of 16)."""

from __future__ import annotations

import pytest

from e2e.base.cell import Cell
from e2e.connectors.offloading import Offloading
from e2e.grid.lengths import solve

CELL = Cell({"layout": "HND", "block_size": 16})


@pytest.mark.parametrize(("tokens", "served"), [(513, 512), (1033, 1024), (1552, 1552)])
def test_whole_blocks_and_none_held_back(tokens, served):
    assert Offloading().hit_rule(CELL, block_size=16).external(tokens) == served


def test_solved_lengths_leave_a_suffix_to_compute():
    adapter = Offloading()
    rule = adapter.hit_rule(CELL, block_size=16)
    plan = solve(rule, adapter.step(CELL, block_size=16), 16, number=3)
    assert plan.oracle == "aligned"
    assert all(n - rule.external(n) >= 1 for n in plan.lengths)
