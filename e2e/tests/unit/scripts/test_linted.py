"""Shell scripts pass shellcheck; workflows are what GitHub takes, and actionlint is content where it is installed."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[4]
BIN = Path(sys.executable).parent
LISTED = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60).stdout
SHELL = [
    name
    for name in LISTED.splitlines()
    if (ROOT / name).is_file() and (ROOT / name).open("rb").readline().rstrip().endswith((b"/sh", b"bash"))
]
PR, NIGHTLY = ".github/workflows/pr.yml", ".github/workflows/nightly.yml"
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def checked(*command: str | Path) -> str:
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=120)
    return "" if done.returncode == 0 else done.stdout + done.stderr


@pytest.mark.parametrize("script", SHELL)
def test_shell_scripts_pass_shellcheck(script):
    assert checked(BIN / "shellcheck", script) == ""


def test_scripts_are_looked_at():
    assert {"scripts/bundle", "scripts/gpu", "scripts/nightly", "scripts/setup", ".ci/run"} <= set(SHELL)
    assert {path.name for path in WORKFLOWS} == {"nightly.yml", "pr.yml"}


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.name)
def test_workflows_are_what_github_takes(workflow):
    schema = ["--builtin-schema", "vendor.github-workflows"]
    assert checked(BIN / "check-jsonschema", *schema, workflow) == ""


def test_the_schema_refuses_what_github_would(tmp_path):
    broken = tmp_path / "broken.yml"
    broken.write_text(WORKFLOWS[0].read_text().replace("runs-on:", "run-on:"))
    assert checked(BIN / "check-jsonschema", "--builtin-schema", "vendor.github-workflows", broken)


@pytest.mark.skipif(shutil.which("actionlint") is None, reason="actionlint is not installed; the PR workflow runs it")
def test_workflows_pass_actionlint():
    assert checked("actionlint", "-no-color") == ""


def test_what_ci_leaves_out_the_nightly_workflow_runs():
    words = r"""scripts/test .*?-m ("[^"]+"|\S+)"""
    chosen = {where: re.findall(words, (ROOT / where).read_text()) for where in (".ci/run", PR, NIGHTLY)}
    assert chosen == {".ci/run": ['"not long"'], PR: ['"not long"'], NIGHTLY: ["long"]}
