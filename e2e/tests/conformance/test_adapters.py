"""Ours hold the contract of e2e.conformance. A new line of the table is tested here without a new test."""

import json
import re
import sys
import types
from pathlib import Path

import pytest

from e2e.conformance.test_contract import *  # noqa: F403
from e2e.connectors.table import ADAPTERS, load
from e2e.grid import axes

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


def test_error_texts_offer_the_axes_that_some_adapter_has():
    had = set().union(*(load(name).axes for name in ADAPTERS))
    assert {name for name, axis in axes.AXES.items() if axis.offered} == had


def test_both_layouts_can_be_run(cells):
    assert {cell.get("layout") for cell in cells} == {"NHD", "HND"}


def test_a_store_outside_the_engine_is_a_new_one_for_each_start(adapter, cells):
    texts = [adapter.config(cells[0], pool_dir=folder, block_size=16).extra for folder in ("/a", "/b")]
    assert (texts[0] == texts[1]) is (adapter.name in IN_ENGINE)
