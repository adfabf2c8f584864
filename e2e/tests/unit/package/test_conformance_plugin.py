"""An author's package in a folder of its own: the wheel's plugin finds its adapter by entry point and checks it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ADAPTER = '''
from dataclasses import dataclass
from e2e.base.connector import Adapter, ConnectorConfig, HitRule
from e2e.connectors.steps import aligned_step

@dataclass(frozen=True)
class Mine(Adapter):
    name = "mine"
    axes = engine_axes = frozenset({"layout", "block_size", "dtype"})
    description = "pages of 64 tokens"

    def config(self, cell, *, pool_dir, block_size):
        return ConnectorConfig(kv_connector="MyConnector", module_path="mine.kv", extra={"path": pool_dir})
    def hit_rule(self, cell, *, block_size): return HitRule(granularity=64, hold_back=1)
    def step(self, cell, *, block_size): return aligned_step(64, block_size)

@dataclass(frozen=True)
class Wrong(Mine):
    """Puts its store in the same place for every engine start, and speaks of an axis that nobody knows."""
    axes = frozenset({"layout", "colour"})
    engine_axes = frozenset({"layout"})
    def config(self, cell, *, pool_dir, block_size):
        return ConnectorConfig(kv_connector="MyConnector", extra={"path": f"/tmp/{hash(pool_dir)}"})
'''
POINTS = "[maru_e2e.connectors]\nmine = mine.adapter:Mine\nwrong = mine.adapter:Wrong\nbroken = mine.adapter:Lost\n"


@pytest.fixture
def theirs(tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "__init__.py").write_text("")
    (tmp_path / "mine" / "adapter.py").write_text(ADAPTER)
    about = tmp_path / "mine-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(POINTS)
    return tmp_path


@pytest.fixture
def checks(theirs, site, with_pytest):
    def run(*words: str, first: Path | None = None) -> tuple[int, str]:
        paths = [*([first] if first else []), site, theirs, with_pytest]
        environ = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, paths)), "PYTHONDONTWRITEBYTECODE": "1"}
        command = [sys.executable, "-S", "-m", "pytest", "-q", "-p", "no:cacheprovider", *words]
        work = theirs / "work"
        work.mkdir(exist_ok=True)
        done = subprocess.run(command, cwd=work, env=environ, capture_output=True, text=True, timeout=120)
        return done.returncode, done.stdout + done.stderr

    return run


@pytest.mark.parametrize("name", ["mine", "mine.adapter:Mine"])
def test_an_adapter_that_holds_the_contract_passes(checks, name):
    code, said = checks("--pyargs", "e2e.conformance", "--maru-connector", name)
    assert code == 0, said
    assert f"[{name}" in checks("--pyargs", "e2e.conformance", "--maru-connector", name, "--collect-only")[1]
    assert int(said.split(" passed")[0].split()[-1]) >= 25


def test_an_adapter_that_breaks_it_fails_where_it_does(checks):
    code, said = checks("--pyargs", "e2e.conformance", "--maru-connector", "mine", "--maru-connector", "wrong")
    assert code == 1, said
    failed = {line.split("::")[1].split("[")[0] for line in said.splitlines() if line.startswith("FAILED")}
    assert {"test_declares_known_axes_and_engine_axes_among_them", "test_two_engine_starts_share_no_store"} <= failed
    assert not [line for line in said.splitlines() if line.startswith("FAILED") and "[mine" in line]


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("minee", "'minee' is unknown; did you mean mine? Use embedded"),
        ("broken", "connector 'broken' of mine: mine.adapter has no Lost; check its name."),
        ("mine.adapter:Nobody", "mine.adapter has no Nobody"),
    ],
)
def test_what_can_not_be_loaded_is_one_sentence(checks, name, says):
    code, said = checks("--pyargs", "e2e.conformance", "--maru-connector", name)
    assert code == pytest.ExitCode.USAGE_ERROR
    (line,) = [line for line in said.splitlines() if line.startswith("ERROR: --maru-connector: ")]
    assert says in line
    assert "Traceback" not in said


def test_without_a_name_nothing_is_green(checks):
    code, said = checks("--pyargs", "e2e.conformance")
    assert code == 1, said
    assert "no adapter is named; give --maru-connector NAME." in said
    assert " passed" not in said


def test_another_e2e_is_named_and_breaks_no_other_tests(checks, theirs):
    other = theirs / "other"
    (other / "e2e").mkdir(parents=True)
    (other / "e2e" / "__init__.py").write_text("")
    (theirs / "work").mkdir()
    (theirs / "work" / "test_theirs.py").write_text("def test_theirs(): assert True\n")
    code, said = checks(first=other)
    assert (code, "1 passed" in said) == (0, True), said
    code, said = checks("--maru-connector", "mine", first=other)
    assert code == pytest.ExitCode.USAGE_ERROR
    assert f"another package e2e ({other / 'e2e'}) hides the rig's" in said
