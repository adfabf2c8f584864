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
SERVERS = ("-f", "compose.yaml", "-f", "docker/compose.maru-servers.yaml")
OVERRIDES = {
    "plain": (),
    "engine": ("--profile", "engine"),
    "build": ("--profile", "build"),
    "canary": ("--profile", "canary"),
    "cxl-host": ("--profile", "cxl"),
    "gpu": ("-f", "compose.yaml", "-f", "docker/compose.gpu.yaml"),
    "maru": MARU,
    "maru-servers": SERVERS,
    "cxl": (*SERVERS, "-f", "docker/compose.cxl.yaml"),
    "dax-fs": (*SERVERS, "-f", "docker/compose.dax-fs.yaml"),
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


def configured(name: str) -> dict[str, dict]:
    """Service -> its configuration."""
    shown = compose(
        *OVERRIDES[name], "config", "--format", "json",
        MARU_IMAGE="maru:1", CXL_DEVICE="/dev/dax0.0", CXL_MOUNT="/mnt/pmem0",
    )  # fmt: skip
    assert shown.returncode == 0, shown.stdout
    return json.loads(shown.stdout[shown.stdout.index("{") :])["services"]


@pytest.mark.parametrize("name", OVERRIDES)
def test_config_of_every_override(client, name):
    services = configured(name)
    assert services.keys() >= {"rig"}
    assert ("engine" in services) == (name in ("engine", "canary"))
    assert ("maru-server" in services) == (name in ("maru-servers", "cxl", "dax-fs"))
    for each in services.values():
        assert "privileged" not in each
        assert ("cap_add" in each) == (name == "maru")
        assert not any("docker.sock" in volume.get("source", "") for volume in each.get("volumes", ()))
    if name == "gpu":
        devices = services["rig"]["deploy"]["resources"]["reservations"]["devices"]
        assert devices[0]["capabilities"] == ["gpu"]


def test_maru_alone_needs_no_other_service_and_no_server_of_one_s_own(client):
    (rig,) = configured("maru").values()
    assert rig["environment"]["MARU_E2E_CONNECTOR"] == "maru"
    assert not {"MARU_SERVER_URL", "depends_on", "network_mode"} & {*rig, *rig["environment"]}
    assert rig["build"]["args"]["BASE"] == "maru:1"


@pytest.mark.parametrize("name", ["cxl", "dax-fs"])
def test_whoever_maps_the_pool_of_a_host_is_given_it(client, name):
    for service, each in configured(name).items():
        given = each.get("devices", ()) if name == "cxl" else [v["target"] for v in each["volumes"]]
        assert any("/dev/dax0.0" in str(one) or one == "/mnt/pmem0" for one in given), service


def test_maru_s_servers_are_healthy_where_somebody_listens(images, free_port):
    """The checks of the file itself, run in an image that has Python and nothing of Maru."""
    services = configured("maru-servers")
    assert services["rig"]["depends_on"]["maru-server"]["condition"] == "service_healthy"
    assert services["maru-server"]["depends_on"]["maru-resource-manager"]["condition"] == "service_healthy"
    for name, port in (("maru-resource-manager", 9850), ("maru-server", 5555)):
        kind, *check = services[name]["healthcheck"]["test"]
        assert kind == "CMD"
        assert str(port) in services[name]["command"]
        listening = f"import socket; s = socket.create_server(('127.0.0.1', {port})); "
        for before, code in (("", 1), (listening, 0)):
            script = f"{before}import subprocess, sys; sys.exit(subprocess.run({check!r}).returncode)"
            ran = subprocess.run(
                ["docker", "run", "--rm", "--entrypoint", "", images, "python3", "-c", script],
                capture_output=True, text=True, timeout=60, check=False,
            )  # fmt: skip
            assert ran.returncode == code, ran.stderr


@pytest.mark.parametrize("override", [MARU, SERVERS])
def test_maru_needs_an_image(client, override):
    shown = compose(*override, "config", MARU_IMAGE="")
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


@pytest.mark.engine
@pytest.mark.skipif("MARU_IMAGE" not in os.environ, reason="needs an image that has Maru, named by MARU_IMAGE")
@pytest.mark.parametrize("user", ["", "1000:1000"])
def test_maru_alone_passes_on_servers_that_the_rig_starts(results, user):
    """As root, or as the user, where the machine allows user namespaces."""
    folder, files = results
    folder.chmod(0o777)
    ran = compose(
        *files, "-f", str(CLONE / "docker/compose.maru.yaml"), "run", "--build", "--rm", "rig", "run", "--cell",
        "layout=HND,storage_format=layerwise,overlap=off", "--out", "results/one",
        limit_s=SECONDS, RIG_USER=user, RIG_IMAGE="maru-e2e-rig:test-maru",
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout
    (found,) = json.loads((folder / "one" / "report.json").read_text())["cells"]
    assert found["verdict"] == "pass"
    assert found["hits"]["predicted"] == found["hits"]["connector"] > 0


@pytest.mark.long
def test_the_pool_keeps_its_contract_in_a_guest_in_a_container(client):
    built = subprocess.run(
        [CLONE / "scripts" / "cxl-host", "build"], capture_output=True, text=True, timeout=1200, check=False
    )  # fmt: skip
    if built.returncode == 2:
        pytest.skip(built.stderr.rstrip().rpartition("\n")[2])
    image = {"CXL_IMAGE": os.environ["BASE"]} if os.environ.get("BASE") else {}
    ran = compose("run", "--rm", "cxl", limit_s=SECONDS, **image)
    assert (ran.returncode, " passed" in ran.stdout) == (0, True), ran.stdout
