"""No connector is known by name outside of connectors/: what is special about one is a value or a method of its
adapter. The rig's own connector is at home in inside/, and its faults' origins stand in the catalogue."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[4]
AT_HOME = ("e2e/connectors/", "e2e/inside/", "e2e/lab/", "e2e/tests/", "e2e/faults/catalogue.py")
NAMES = re.compile(r"embedded|maru|lmcache|offloading|decode.?bench|exampleconnector", re.IGNORECASE)
#: The project's own name, in its command, package, variables, files and metrics.
OURS = re.compile(r"maru[-_.](e2e|connector|canary)", re.IGNORECASE)
FILES = [path for path in sorted((ROOT / "e2e").rglob("*.py")) if not str(path.relative_to(ROOT)).startswith(AT_HOME)]


def words(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Texts, and names with a blank behind them, of a module with their lines; docstrings explain, and are none."""
    said = {
        node.body[0].value
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in said:
            yield node.lineno, node.value
        for field in ("id", "attr", "name", "module", "arg"):
            if isinstance(found := getattr(node, field, None), str):
                yield getattr(node, "lineno", 0), f"{found} "


def named(text: str) -> list[str]:
    """``line: word`` of each connector in a module's text."""
    found = words(ast.parse(text))
    return [f"{line}: {word}" for line, word in found if NAMES.search(OURS.sub("", word)) or word == "example"]


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_connector_is_known_by_name(path):
    assert named(path.read_text()) == []


@pytest.mark.parametrize(
    "breach",
    ["double = adapter.name == 'embedded'", "from e2e.connectors.maru.rpc import MaruServer",
     "if 'lmcache' in found: pass", "def maru(at): pass", "load('example')"],
)  # fmt: skip
def test_a_breach_is_seen(breach):
    assert len(FILES) > 100
    assert named(breach)
    assert not named('"""As Maru does."""\nprefix = "MARU_E2E_"\nname = "maru-e2e"\n')
