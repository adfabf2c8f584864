"""The wheel as pip makes it of this tree."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from declared import ROOT, linked


@pytest.fixture(scope="session")
def wheel(tmp_path_factory) -> Path:
    made = tmp_path_factory.mktemp("wheel")
    source = made / "source"  # a copy, since setuptools builds inside the tree
    for folder in ("e2e", "maru_e2e", "prompts"):
        shutil.copytree(ROOT / folder, source / folder, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    for file in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / file, source)
    build = ["-m", "pip", "--quiet", "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(made)]
    subprocess.run([sys.executable, *build, str(source)], check=True, timeout=120)
    (found,) = made.glob("*.whl")
    return found


@pytest.fixture(scope="session")
def site(wheel, tmp_path_factory) -> Path:
    """What pip would put into site-packages."""
    folder = tmp_path_factory.mktemp("site")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    return folder


@pytest.fixture(scope="session")
def dependencies(tmp_path_factory) -> Path:
    """A folder that sees the distributions that the rig declares, and no other."""
    return linked(tmp_path_factory.mktemp("dependencies"))


@pytest.fixture(scope="session")
def with_pytest(tmp_path_factory) -> Path:
    """The same with the extra ``conformance``."""
    return linked(tmp_path_factory.mktemp("with-pytest"), "conformance")
