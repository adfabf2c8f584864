"""scripts/gpu with a stand-in for Python: steps go on after a failure, and no failure is green."""

import os
import subprocess
from pathlib import Path

import pytest

GPU = Path(__file__).resolve().parents[4] / "scripts" / "gpu"
PYTHON = r"""#!/usr/bin/env bash
[[ "$1" == -c ]] && { echo "$VLLM"; exit 0; }
[[ "${4:-}" == --help ]] && exit 0
[[ "$2" == e2e.stack.shaped ]] && { [[ "$3" == tiny ]] && echo "$4/tiny" && exit 0; exit 1; }
step="$3"
[[ "$2" == e2e.tests.benchmarks.* ]] && step="${2##*.}"
echo "$step" >>"$CALLS"
echo "$*" >>"$CALLS.whole"
code="${step^^}_CODE"
exit "${!code:-0}"
"""


STEPS = "check, transfer, ttft, placement, grid, side, faults, gain, overlap"


@pytest.fixture
def run(tmp_path):
    python = tmp_path / "python"
    python.write_text(PYTHON)
    python.chmod(0o755)

    def call(*words, **environ):
        return subprocess.run(
            [GPU, "--out", tmp_path / "out", *words],
            env={**os.environ, "PYTHON": str(python), "VLLM": "0.23.0", "CALLS": str(tmp_path / "calls"), **environ},
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip

    return call


def test_every_step_runs_whatever_the_others_say(run, tmp_path):
    done = run(PLACEMENT_CODE="70")
    steps = ["transfer", "ttft", "placement", "run", "run", "faults", "gain", "gain"]
    assert (tmp_path / "calls").read_text().split() == steps
    assert done.returncode == 70


def test_what_stands_behind_the_dashes_is_for_grid_and_gain(run, tmp_path):
    assert run("--", "--cell", "tensor_parallel=2").returncode == 0
    whole = (tmp_path / "calls.whole").read_text().splitlines()
    given = {line.split()[2]: "--cell tensor_parallel=2" in line for line in whole if "e2e.cli" in line}
    assert given == {"placement": False, "run": True, "faults": False, "gain": True}


def test_a_model_of_a_shape_is_made_first_and_given_to_every_step(run, tmp_path):
    assert run("--shape", "tiny", "--models", str(tmp_path)).returncode == 0
    whole = (tmp_path / "calls.whole").read_text().splitlines()
    steps = [line for line in whole if any(f"{name} " in line for name in (".ttft", " run", " gain"))]
    assert len(steps) == 5
    assert all(f"--model {tmp_path}/tiny" in line for line in steps)


@pytest.mark.parametrize(
    ("codes", "code"),
    [
        ({}, 0),
        ({"RUN_CODE": "3", "FAULTS_CODE": "4", "GAIN_CODE": "1"}, 1),
        ({"RUN_CODE": "3", "FAULTS_CODE": "4"}, 4),
        ({"RUN_CODE": "3", "FAULTS_CODE": "2"}, 2),
        ({"RUN_CODE": "137"}, 4),
        ({"RUN_CODE": "143"}, 3),
        ({"RUN_CODE": "139"}, 70),
        ({"GAIN_CODE": "127"}, 70),
    ],
    ids=str,
)
def test_the_worst_step_gives_the_code(run, codes, code):
    assert run(**codes).returncode == code


def test_the_grid_is_run_once_more_side_by_side(run, tmp_path):
    assert run("--only", "side", "--", "--prompts", "2").returncode == 0
    (words,) = (tmp_path / "calls.whole").read_text().splitlines()
    assert "--side-by-side 4" in words
    assert words.endswith("--prompts 2")


def test_only_named_steps_run(run, tmp_path):
    assert run("--only", "grid", FAULTS_CODE="1").returncode == 0
    assert (tmp_path / "calls").read_text().split() == ["run"]


@pytest.mark.parametrize(
    ("words", "environ", "says"),
    [
        (("--only", "gird"), {}, f"no step gird; use {STEPS}."),
        (("--bundle", "/nowhere"), {}, "no folder /nowhere."),
        (("--shape", "9b"), {}, "no model of shape 9b."),
        (("--no-such-flag",), {}, "--no-such-flag is unknown."),
        ((), {"VLLM": "0.13.0"}, "vLLM 0.13.0 is not one of 0.14 to 0.33, which the rig knows."),
        ((), {"VLLM": "1.2.0"}, "vLLM 1.2.0 is not one of 0.14 to 0.33, which the rig knows."),
        (("--only", "check"), {}, "nothing was run."),
    ],
)
def test_what_can_not_be_run_is_said(run, words, environ, says):
    done = run(*words, **environ)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1] == f"gpu: {says}"
