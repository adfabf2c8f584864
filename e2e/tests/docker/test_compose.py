"""The Compose file on a real engine: the grid, exit codes, whose the results are, the server to curl."""

from __future__ import annotations

import json
import os
import subprocess

import pytest
import requests

from e2e.tests.docker.on_docker import CLONE, compose

pytestmark = [pytest.mark.docker, pytest.mark.timeout(2400)]
MARU = ("-f", "compose.yaml", "-f", "docker/compose.maru.yaml")
OVERRIDES = {
    "plain": (),
    "engine": ("--profile", "engine"),
    "build": ("--profile", "build"),
    "gpu": ("-f", "compose.yaml", "-f", "docker/compose.gpu.yaml"),
    "maru": MARU,
    "cxl": (*MARU, "-f", "docker/compose.cxl.yaml"),
    "dax-fs": (*MARU, "-f", "docker/compose.dax-fs.yaml"),
}
SECONDS = 900


@pytest.fixture
def results(images, tmp_path):
    """Empties nothing of the user's: a Compose override takes another folder for results."""
    folder = tmp_path / "results"
    folder.mkdir()
    override = tmp_path / "compose.results.yaml"
    override.write_text(
        f"services:\n  rig:\n    volumes:\n      - {folder}:/opt/maru-e2e/results\nname: maru-e2e-test-{os.getpid()}\n"
    )
    files = ("--project-directory", str(CLONE), "-f", str(CLONE / "compose.yaml"), "-f", str(override))
    yield folder, files
    compose(*files, "--profile", "engine", "down", "--volumes")


@pytest.mark.parametrize("name", OVERRIDES)
def test_config_of_every_override(client, name):
    shown = compose(
        *OVERRIDES[name], "config", "--format", "json",
        MARU_IMAGE="maru:1", CXL_DEVICE="/dev/dax0.0", CXL_MOUNT="/mnt/pmem0",
    )  # fmt: skip
    assert shown.returncode == 0, shown.stdout
    config = json.loads(shown.stdout[shown.stdout.index("{") :])
    services = set(config["services"])
    assert services >= {"rig"}
    assert ("engine" in services) == (name == "engine")
    assert ("maru-server" in services) == (name in ("maru", "cxl", "dax-fs"))
    for each in config["services"].values():
        assert "privileged" not in each
        assert not any("docker.sock" in volume.get("source", "") for volume in each.get("volumes", ()))
    if name == "gpu":
        devices = config["services"]["rig"]["deploy"]["resources"]["reservations"]["devices"]
        assert devices[0]["capabilities"] == ["gpu"]


def test_maru_needs_an_image(client):
    shown = compose(*MARU, "config", MARU_IMAGE="")
    assert shown.returncode != 0
    assert "name the image that has Maru" in shown.stdout


@pytest.mark.engine
def test_up_runs_two_cells_and_ends(results):
    folder, files = results
    args = "--cell storage_format=chunkwise,overlap=on,placement=kernel --out results/two"
    ran = compose(*files, "up", "--no-color", "--exit-code-from", "rig", "rig", limit_s=SECONDS, RIG_ARGS=args)
    assert ran.returncode == 0, ran.stdout
    assert "2 of 2 pass" in ran.stdout
    report = json.loads((folder / "two" / "report.json").read_text())
    assert [cell["verdict"] for cell in report["cells"]] == ["pass", "pass"]
    assert {path.stat().st_uid for path in folder.rglob("*")} == {os.getuid()}


def test_run_returns_the_rig_s_exit_code(results):
    _, files = results
    ran = compose(*files, "run", "--rm", "rig", "run", "--cell", "layout=NDH", limit_s=120)
    assert (ran.returncode, "use NHD or HND" in ran.stdout) == (2, True), ran.stdout
    listed = compose(*files, "run", "--rm", "rig", "cells", limit_s=120)
    assert listed.returncode == 0
    assert "cells: 16" in listed.stdout


def test_up_returns_it_only_when_asked(results):
    _, files = results
    args = "--cell layout=NDH"
    assert compose(*files, "up", "rig", limit_s=120, RIG_ARGS=args).returncode == 0
    assert compose(*files, "up", "--exit-code-from", "rig", "rig", limit_s=120, RIG_ARGS=args).returncode == 2


def test_results_that_can_t_be_written(results):
    folder, files = results
    folder.chmod(0o755)
    ran = compose(*files, "run", "--rm", "rig", limit_s=120, RIG_USER="65534:65534")
    assert ran.returncode == 2
    assert f"belongs to {os.getuid()}:{os.getgid()}; start with RIG_USER=" in ran.stdout


@pytest.mark.engine
def test_engine_is_healthy_and_serves_the_setting_asked_for(results, free_port):
    _, files = results
    environ = {"PORT": str(free_port), "LAYOUT": "HND", "STORAGE_FORMAT": "layerwise"}
    up = compose(*files, "up", "--detach", "--wait", "engine", limit_s=SECONDS, **environ)
    log = compose(*files, "logs", "--no-color", "engine").stdout
    assert up.returncode == 0, up.stdout + log
    assert "engine: HND-layerwise-overlap_off-index on cpu" in log
    ask = {"model": "model", "prompt": "A lighthouse is", "max_tokens": 4, "temperature": 0}
    answer = requests.post(f"http://127.0.0.1:{free_port}/v1/completions", json=ask, timeout=120).json()
    assert answer["usage"]["completion_tokens"] == 4


def test_engine_refuses_a_setting_in_one_sentence(results, free_port):
    _, files = results
    ran = compose(*files, "run", "--rm", "engine", limit_s=120, LAYOUT="NDH", PORT=str(free_port))
    assert ran.returncode == 1
    assert "engine: axis layout: 'NDH' is unknown; use NHD or HND." in ran.stdout
    assert "Traceback" not in ran.stdout


def test_the_image_holds_no_secret_and_no_converter(images):
    listed = subprocess.run(
        ["docker", "run", "--rm", "--entrypoint", "", images, "python", "-c",
         "import importlib.util as u, e2e, os; print(u.find_spec('e2e.stack'), os.getuid())"],
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    assert listed.stdout.split() == ["None", "1000"]
    history = subprocess.run(
        ["docker", "history", "--no-trunc", images], capture_output=True, text=True, timeout=60, check=True
    )
    assert "ca.crt" not in history.stdout
