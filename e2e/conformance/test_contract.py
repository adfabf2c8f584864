"""The contract of an adapter (``e2e.base.connector.Adapter``), checked over every grid; nothing is started."""

import json
from itertools import pairwise

import pytest

from e2e.base.cell import AXES
from e2e.base.connector import Abilities, ConnectorConfig, HitRule
from e2e.connectors.table import load
from e2e.grid.cells import by_engine, expand
from e2e.grid.lengths import solve
from e2e.grid.selection import GRIDS, Selection


@pytest.fixture
def adapter(maru_connector):
    return load(maru_connector)


@pytest.fixture(params=list(GRIDS))
def grid(adapter, request):
    return expand(Selection(GRIDS[request.param]), adapter)


@pytest.fixture
def cells(grid):
    return grid.require_cells().cells


def one_sentence(text):
    return text is None or (isinstance(text, str) and text.strip() and "\n" not in text)


def test_declares_known_axes_and_engine_axes_among_them(adapter):
    assert adapter.engine_axes <= adapter.axes <= set(AXES)
    assert "layout" in adapter.engine_axes
    assert adapter.name
    assert adapter.description
    assert isinstance(adapter.abilities, Abilities)
    assert adapter.abilities.longest_prompt is None or adapter.abilities.longest_prompt > 2
    assert adapter.abilities.pool_bytes is None or adapter.abilities.pool_bytes > 0


def test_a_pool_of_any_size_is_had_where_that_is_stated(adapter, cells):
    if not adapter.abilities.sized_pool:
        with pytest.raises(NotImplementedError):
            adapter.with_pool(1 << 20, evicts=True)
        return
    both = [adapter.with_pool(1 << 20, evicts=evicts) for evicts in (True, False)]
    assert {one.abilities.pool_bytes for one in both} == {1 << 20}
    assert len({str(one.config(cells[0], pool_dir="/pool", block_size=16)) for one in (adapter, *both)}) == 3


def test_each_layout_can_be_run_or_it_says_why(grid):
    assert grid.cells, [invalid.why for invalid in grid.invalid]
    assert all(invalid.why and one_sentence(invalid.why) for invalid in grid.invalid)
    seen = {cell.get("layout") for cell in grid.cells} | {invalid.cell.get("layout") for invalid in grid.invalid}
    assert seen == {"NHD", "HND"}


def test_what_can_not_be_is_one_sentence(adapter, cells):
    for device in ("cpu", "cuda"):
        assert one_sentence(adapter.missing(device=device))
    for cell in cells:
        assert adapter.check(cell) is None
        assert all(one_sentence(adapter.refuses(cell, tokens)) for tokens in (1, 255, 256, 1024, 1025))
        assert all({"fault_class", "why"} <= spot.keys() for spot in adapter.blind(cell))


def test_config_is_plain_json_and_equal_for_cells_of_one_engine(adapter, cells):
    for same in by_engine(cells, adapter).values():
        configs = [adapter.config(cell, pool_dir="/pool", block_size=16) for cell in same]
        assert all(isinstance(config, ConnectorConfig) for config in configs)
        assert all(config == configs[0] for config in configs)
        as_given = configs[0].as_kv_transfer_config()
        assert json.loads(json.dumps(as_given)) == as_given
        assert all(isinstance(word, str) for word in configs[0].engine_args)
        assert all(isinstance(v, str) for v in configs[0].env.values())


def test_two_engine_starts_share_no_store(adapter, cells):
    """What a connector stores in a folder, it stores in the one that it is given."""
    texts = [
        json.dumps(adapter.config(cells[0], pool_dir=d, block_size=16).as_kv_transfer_config()) for d in ("/a", "/b")
    ]
    assert texts[0].replace("/a", "/b") == texts[1]


def test_cells_of_one_engine_differ_in_their_requests(adapter, cells):
    for same in by_engine(cells, adapter).values():
        params = [json.dumps(adapter.request_params(cell), sort_keys=True) for cell in same]
        assert len(set(params)) == len(same)


@pytest.mark.parametrize("block_size", [16, 32, 128])
def test_hit_rule_is_monotone_and_never_serves_what_is_held_back(adapter, cells, block_size):
    for cell in cells:
        rule = adapter.hit_rule(cell, block_size=block_size)
        assert isinstance(rule, HitRule)
        served = [rule.external(n) for n in range(0, 2000)]
        assert all(a <= b for a, b in pairwise(served))
        assert all(found <= max(n - rule.hold_back, 0) for n, found in enumerate(served))
        assert served[0] == 0
        assert max(served) > 0
        assert all(0 <= rule.external(n, local) <= rule.external(n) for n in (1, 600, 1999) for local in (0, 16, 2000))
        assert all(0 <= rule.least(n, local) <= rule.external(n, local) for n in (1, 600, 1999) for local in (0, 16))


@pytest.mark.parametrize("block_size", [16, 32, 128])
def test_lengths_are_solved_or_it_says_why(adapter, cells, block_size):
    for cell in cells:
        rule, step = adapter.hit_rule(cell, block_size=block_size), adapter.step(cell, block_size=block_size)
        assert step is None or step % block_size == 0
        plan = solve(rule, step, block_size, longest=adapter.abilities.longest_prompt)
        assert len(set(plan.lengths)) >= 3
        assert all(plan.matched) or plan.why
        assert plan.oracle == "aligned" or step is None or plan.why
