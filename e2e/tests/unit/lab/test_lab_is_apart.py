"""The lab runs in any Python that has torch, and no engine holds it."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from e2e.grid.axes import AXES
from e2e.lab import command
from e2e.stack.interpreter import rigs_half

ROOT = Path(__file__).parents[4]


def engines_image(tmp_path: Path) -> Path:
    """What the image's stage ``engine`` copies of the rig's code."""
    stage = (ROOT / "docker" / "Dockerfile").read_text().partition(" AS engine\n")[2].partition("\nFROM ")[0]
    for source, target in re.findall(r"^COPY (e2e\S*) /opt/engine/(\S+)$", stage, flags=re.M):
        place = tmp_path / target
        if (ROOT / source).is_dir():
            shutil.copytree(ROOT / source, place, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            place.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / source, place)
    return tmp_path


@pytest.mark.parametrize("made", [engines_image, rigs_half])
def test_an_engine_has_the_axis_placement_and_no_lab(made, tmp_path):
    here = made(tmp_path)
    assert {path.name for path in (here / "e2e").iterdir()} == {"__init__.py", "base", "inside"}
    placements = {path.name for path in (here / "e2e" / "inside" / "placement").glob("*.py")}
    assert placements == {"__init__.py", "base.py", "index.py", "flat_walk.py", "triton_kernel.py"}
    values = AXES["placement"].values
    looks = f"""
import sys
sys.path.insert(0, {str(here)!r})
from e2e.inside import faults, placement
assert placement.__file__.startswith({str(here)!r}), placement.__file__
assert [placement.get(name).name for name in {values!r}] == list({values!r}) == list(placement.NAMES)
assert not [name for name in sys.modules if name.startswith("e2e.lab")]
"""
    done = subprocess.run([sys.executable, "-c", looks], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_an_engines_python_finds_the_lab_in_the_rigs_place(tmp_path, monkeypatch):
    """It has torch and the rooms that engines need on its path, and no others."""
    path = f"{rigs_half(tmp_path / 'half')}:{Path(torch.__file__).parents[1]}"
    monkeypatch.setattr(command.world, "engine_environment", lambda python: {"PYTHONPATH": path})
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')  # without site, no install of the rig is found
    python.chmod(0o755)
    looks = [python, "-c", "import e2e.inside.geometry, importlib.util as u; assert not u.find_spec('e2e.lab')"]
    monkeypatch.chdir(tmp_path)
    subprocess.run(looks, env={"PYTHONPATH": path}, check=True)
    arguments = ["--device", "cpu", "--cases", "1", "--only", "index"]
    found = command._run("regression", arguments, out=tmp_path, python=str(python), limit_s=300)
    assert found["ok"]
    assert {row["placement"] for row in found["grid"]} == {"index"}
