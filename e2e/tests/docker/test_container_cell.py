"""One cell on real vLLM in containers, as a user runs it."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from e2e.stack.containers import RUN_LABEL

pytestmark = [pytest.mark.docker, pytest.mark.engine, pytest.mark.timeout(2400)]
CELL = "layout=HND,storage_format=layerwise,overlap=on,placement=kernel"


def test_one_cell_passes_in_containers(client, images, tmp_path):
    out = tmp_path / "out"
    ran = subprocess.run(
        [sys.executable, "-m", "e2e.cli", "run", "--launcher", "docker", "--image", images, "--device", "cpu",
         "--cell", CELL, "--out", str(out)],
        env={**os.environ, "XDG_STATE_HOME": str(tmp_path / "state")},
        text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=1800, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout
    (cell,) = json.loads((out / "report.json").read_text())["cells"]
    assert (cell["verdict"], cell["first_generation"]) == ("pass", "identical")
    assert cell["hits"]["predicted"] == cell["hits"]["engine"] == cell["hits"]["connector"] > 0
    events = [json.loads(line) for line in (out / "recording.jsonl").read_text().splitlines()]
    assert [event["data"]["launcher"] for event in events if event["kind"] == "engine.start"] == ["docker", "docker"]
    (run_id,) = [event["data"]["run_id"] for event in events if event["kind"] == "run.begin"]
    assert client.containers.list(all=True, filters={"label": f"{RUN_LABEL}={run_id}"}) == []


def test_an_image_that_is_missing_ends_the_run_in_one_sentence(client, tmp_path):
    ran = subprocess.run(
        [sys.executable, "-m", "e2e.cli", "run", "--launcher", "docker", "--image", "none/such:1", "--device", "cpu",
         "--cell", CELL, "--out", str(tmp_path / "out")],
        env={**os.environ, "XDG_STATE_HOME": str(tmp_path / "state")},
        text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=120, check=False,
    )  # fmt: skip
    assert ran.returncode == 2
    assert "image none/such:1 is not here; build it" in ran.stdout
    assert "Traceback" not in ran.stdout
