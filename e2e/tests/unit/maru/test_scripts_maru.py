"""scripts/maru with a folder: what it installs, what it writes down, and that it leaves the folder as it was."""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from e2e.connectors.installed import installed

SCRIPT = Path(__file__).resolve().parents[4] / "scripts" / "maru"
PYPROJECT = """
[build-system]
requires = ["setuptools"]
build-backend = "setuptools.build_meta"
[project]
name = "maru"
version = "9.9"
[tool.setuptools]
packages = ["maru_vllm"]
"""


@pytest.fixture
def clone(tmp_path):
    """A rig's clone with an environment of its own, whose pip can build, and a doctor that says nothing."""
    root = tmp_path / "rig"
    (root / "scripts").mkdir(parents=True)
    shutil.copy(SCRIPT, root / "scripts" / "maru")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", root / ".venv"], check=True)
    (site,) = (root / ".venv" / "lib").glob("python*/site-packages")
    (site / "base.pth").write_text(sysconfig.get_path("purelib"))
    (root / ".venv" / "bin" / "maru-e2e").write_text("#!/bin/sh\nexit 0\n")
    (root / ".venv" / "bin" / "maru-e2e").chmod(0o755)
    return root


def maru(clone, requirement):
    done = subprocess.run(
        [clone / "scripts" / "maru"], env={"PATH": "/usr/bin:/bin", "MARU_REQUIREMENT": str(requirement)},
        capture_output=True, text=True, timeout=200, check=False,
    )  # fmt: skip
    return done.returncode, done.stderr


def git(folder, *words):
    who = ("-c", "user.name=x", "-c", "user.email=x@example.org")
    return subprocess.run(["git", *who, *words], cwd=folder, check=True, capture_output=True, text=True).stdout.strip()


def test_a_folder_is_installed_and_its_commit_is_known(clone, tmp_path):
    folder = tmp_path / "maru"
    (folder / "maru_vllm").mkdir(parents=True)
    (folder / "maru_vllm" / "__init__.py").write_text("")
    (folder / "pyproject.toml").write_text(PYPROJECT)
    git(folder, "init", "-q")
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "x")
    before = sorted(path.name for path in folder.iterdir())
    code, said = maru(clone, folder)
    assert code == 0, said
    assert "maru-resource-manager is C++ and in no wheel" in said
    assert sorted(path.name for path in folder.iterdir()) == before
    python = str(clone / ".venv" / "bin" / "python")
    assert installed(python).maru == ("9.9", git(folder, "rev-parse", "HEAD"))


@pytest.mark.parametrize(
    ("requirement", "sentence"),
    [("", "set MARU_REQUIREMENT"), ("maru==1", "belongs to another project"), ("/nowhere/maru", "can't be installed")],
)
def test_what_can_not_be_installed_is_said(clone, requirement, sentence):
    code, said = maru(clone, requirement)
    assert code == 2
    assert sentence in said
