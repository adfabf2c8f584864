"""Scripts of a clone that was never set up, and what Docker's build copies."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[4]


def test_docker_engine_without_an_environment_says_to_set_up_first(tmp_path):
    (tmp_path / "scripts").mkdir()
    script = shutil.copy(ROOT / "scripts" / "docker-engine", tmp_path / "scripts")
    done = subprocess.run([script], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert done.stderr.splitlines() == [f"docker-engine: there is no .venv in {tmp_path}; run scripts/setup first."]
    assert done.stdout == ""


def test_setup_takes_no_other_word(tmp_path):
    (tmp_path / "scripts").mkdir()
    (tmp_path / "e2e").mkdir()
    for name in ("scripts/setup", "pyproject.toml", "e2e/setup.py"):
        shutil.copy(ROOT / name, tmp_path / name)
    done = subprocess.run([tmp_path / "scripts" / "setup", "tpu"], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (2, "setup: tpu is unknown; use cpu or gpu.\n")
    assert not (tmp_path / ".venv").exists()


def stage(name: str) -> str:
    text = (ROOT / "docker" / "Dockerfile").read_text()
    return next(part for part in re.split(r"^FROM ", text, flags=re.M) if part.startswith(f"engine AS {name}"))


def test_the_models_layer_has_all_that_making_it_imports(tmp_path):
    for words in re.findall(r"^COPY (e2e/.*) /opt/maru-e2e/(\S+)$", stage("model"), flags=re.M):
        target = tmp_path / words[1]
        target.mkdir(parents=True)
        for file in words[0].split():
            shutil.copy(ROOT / file, target)
    looks = (
        "import sys, e2e.stack.model\n"
        "print(*(module.__file__ for name, module in sys.modules.items() if name.startswith('e2e.')), sep='\\n')"
    )
    done = subprocess.run(
        [sys.executable, "-c", looks], cwd=tmp_path, env={"PYTHONPATH": str(tmp_path)}, capture_output=True, text=True
    )
    files = done.stdout.split()
    assert str(tmp_path / "e2e" / "stack" / "model.py") in files, done.stderr
    assert [file for file in files if not file.startswith(str(tmp_path))] == []


@pytest.mark.parametrize("names", [("run", "maru"), ("model",)])
def test_the_builds_layers_know_what_the_rig_depends_on(names):
    words = [sys.executable, ROOT / "docker" / "dependencies.py", ROOT / "pyproject.toml", *names]
    printed = subprocess.run(words, capture_output=True, text=True, check=True).stdout.splitlines()
    assert " ".join(names) in (ROOT / "docker" / "Dockerfile").read_text()
    wanted = {"run": "pydantic", "maru": "pyzmq", "model": "gguf"}
    assert all(any(line.startswith(wanted[name]) for line in printed) for name in names)


def test_what_docker_copies_is_in_the_builds_context():
    context = (ROOT / ".dockerignore").read_text().split()
    copied = {
        word.split("/")[0]
        for line in re.findall(r"^COPY (?!--from)(.*)$", (ROOT / "docker" / "Dockerfile").read_text(), flags=re.M)
        for word in line.split()[:-1]
    }
    assert copied >= {"e2e", "maru_e2e", "prompts"}
    assert {f"!{name}" for name in copied} <= set(context)
