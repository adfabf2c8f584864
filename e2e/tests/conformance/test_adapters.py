"""What every adapter must hold, whoever wrote it. A new line of the table is tested here without a new test."""

import json
import re
import sys
import types
from itertools import pairwise
from pathlib import Path

import pytest

from e2e.base.cell import AXES
from e2e.connectors.table import ADAPTERS, load
from e2e.grid import axes
from e2e.grid.cells import by_engine, expand
from e2e.grid.lengths import solve
from e2e.grid.selection import GRIDS, Selection

PAGE = Path(__file__).parents[3] / "docs" / "connectors.md"
#: Their store dies with the engine, or is a server that a user gives.
IN_ENGINE = ("decode-bench", "lmcache", "lmcache-mp", "offloading")
GENERIC = '[connector]\nname = "file"\nclass = "Some"\ngranularity = {}\n[connector.extra]\npath = "{{pool_dir}}"\n'


@pytest.fixture(params=[*ADAPTERS, "docs", "block", 100, 256])
def adapter(request, tmp_path):
    if request.param in ADAPTERS:
        return load(request.param)
    if request.param == "docs":
        return of_readme()
    path = tmp_path / "connector.toml"
    path.write_text(GENERIC.format(json.dumps(request.param)))
    return load(str(path))


def of_readme():
    """The adapter that docs/connectors.md shows, so that what it shows works."""
    shown = re.search(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)[1]
    assert len(shown.splitlines()) <= 60
    module = types.ModuleType("shown")
    sys.modules["shown"] = module
    exec(compile(shown, str(PAGE), "exec"), module.__dict__)
    return module.Mine()


@pytest.fixture(params=list(GRIDS))
def cells(adapter, request):
    return expand(Selection(GRIDS[request.param]), adapter).require_cells().cells


def test_declares_known_axes_and_engine_axes_among_them(adapter):
    assert adapter.engine_axes <= adapter.axes <= set(AXES)
    assert "layout" in adapter.engine_axes
    assert adapter.name
    assert adapter.description
    assert isinstance(adapter.has_counters, bool)
    assert adapter.longest_prompt is None or adapter.longest_prompt > 2


def test_error_texts_offer_the_axes_that_some_adapter_has():
    had = set().union(*(load(name).axes for name in ADAPTERS))
    assert {name for name, axis in axes.AXES.items() if axis.offered} == had


def test_default_grid_can_be_run(cells):
    assert {cell.get("layout") for cell in cells} == {"NHD", "HND"}


def test_config_is_plain_json_and_equal_for_cells_of_one_engine(adapter, cells):
    for same in by_engine(cells, adapter).values():
        configs = [adapter.config(cell, pool_dir="/pool", block_size=16) for cell in same]
        assert all(config == configs[0] for config in configs)
        as_given = configs[0].as_kv_transfer_config()
        assert json.loads(json.dumps(as_given)) == as_given
        assert all(isinstance(word, str) for word in configs[0].engine_args)
        assert all(isinstance(v, str) for v in configs[0].env.values())


def test_two_engine_starts_share_no_store(adapter, cells):
    """A connector that stores anything outside the engine stores it in the folder that it is given."""
    texts = [
        json.dumps(adapter.config(cells[0], pool_dir=d, block_size=16).as_kv_transfer_config()) for d in ("/a", "/b")
    ]
    assert texts[0].replace("/a", "/b") == texts[1]
    if adapter.name not in IN_ENGINE:
        assert texts[0] != texts[1]


def test_cells_of_one_engine_differ_in_their_requests(adapter, cells):
    for same in by_engine(cells, adapter).values():
        params = [json.dumps(adapter.request_params(cell), sort_keys=True) for cell in same]
        assert len(set(params)) == len(same)


@pytest.mark.parametrize("block_size", [16, 32, 128])
def test_hit_rule_is_monotone_and_never_serves_what_is_held_back(adapter, cells, block_size):
    for cell in cells:
        rule = adapter.hit_rule(cell, block_size=block_size)
        served = [rule.external(n) for n in range(0, 2000)]
        assert all(a <= b for a, b in pairwise(served))
        assert all(found <= max(n - rule.hold_back, 0) for n, found in enumerate(served))
        assert served[0] == 0
        assert max(served) > 0
        assert all(0 <= rule.external(n, local) <= rule.external(n) for n in (1, 600, 1999) for local in (0, 16, 2000))


@pytest.mark.parametrize("block_size", [16, 32, 128])
def test_lengths_are_solved_or_it_says_why(adapter, cells, block_size):
    for cell in cells:
        rule, step = adapter.hit_rule(cell, block_size=block_size), adapter.step(cell, block_size=block_size)
        assert step is None or step % block_size == 0
        plan = solve(rule, step, block_size, longest=adapter.longest_prompt)
        assert len(set(plan.lengths)) >= 3
        assert all(plan.matched) or plan.why
        assert plan.oracle == "aligned" or step is None or plan.why
