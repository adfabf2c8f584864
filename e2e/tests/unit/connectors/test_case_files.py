"""The cases in e2e/tests/cases: each switch of their connector has a file that turns on nothing else."""

import ast
from pathlib import Path

import pytest

from e2e.base.cell import Cell
from e2e.connectors.table import load

CASES = Path(__file__).parents[2] / "cases"


def switches() -> set[str]:
    """Read, not imported: the connector needs vLLM."""
    tree = ast.parse((CASES / "story_connectors.py").read_text())
    named = {node.targets[0].id: node.value for node in tree.body if isinstance(node, ast.Assign)}
    return {*ast.literal_eval(named["BROKEN"]), *ast.literal_eval(named["UNUSUAL"])}


def test_every_switch_has_a_file():
    assert {path.stem for path in CASES.glob("*.toml")} == {"good", *switches()}


@pytest.mark.parametrize("path", sorted(CASES.glob("*.toml")), ids=lambda path: path.stem)
def test_a_file_turns_on_what_its_name_says(path):
    adapter = load(str(path))
    config = adapter.config(Cell({"layout": "HND"}), pool_dir="/pool", block_size=16)
    assert config.extra == {"dir": "/pool/store", "on": [] if path.stem == "good" else [path.stem]}
    assert config.module_path == "e2e.tests.cases.story_connectors"
