"""An engine that dies in mid-run: its cell is an error with the root cause, other cells and engine keys still run."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path

import psutil
import pytest

from e2e.tests.engine.conftest import Rig, left_of

pytestmark = [pytest.mark.engine, pytest.mark.kill, pytest.mark.timeout(900)]


def _events(out: Path) -> list[dict]:
    path = out / "recording.jsonl"
    return [json.loads(line) for line in path.read_text().split("\n")[:-1]] if path.exists() else []


def _worker_of(run_id: str) -> psutil.Process | None:
    for process in psutil.process_iter():
        try:
            if process.environ().get("MARU_E2E_RUN") == run_id and "Worker" in " ".join(process.cmdline()):
                return process
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return None


def test_engine_killed_in_a_cell(tmp_path) -> None:
    rig, out = Rig(tmp_path / "state"), tmp_path / "out"
    settings = "storage_format=chunkwise,overlap=off,placement=index"
    cells = [word for layout in ("NHD", "HND") for word in ("--cell", f"layout={layout},{settings}")]
    with (tmp_path / "said.txt").open("w") as said:
        rig_process = subprocess.Popen(
            rig.command("run", "--out", str(out), *cells), env=rig.environ, stdout=said, stderr=subprocess.STDOUT
        )
        deadline = time.monotonic() + 300
        while not any(e["kind"] == "cell.begin" for e in _events(out)):
            assert time.monotonic() < deadline
            assert rig_process.poll() is None
            time.sleep(0.1)
        run_id = _events(out)[0]["data"]["run_id"]
        _worker_of(run_id).kill()
        assert rig_process.wait(600) == 4, (tmp_path / "said.txt").read_text()
    report = json.loads((out / "report.json").read_text())
    found = {cell["id"].split("-")[0]: (cell["verdict"], cell["reason"]) for cell in report["cells"]}
    assert found == {"NHD": ("error", "engine crashed"), "HND": ("pass", None)}
    failed = [e["data"] for e in _events(out) if e["kind"] == "engine.failed"]
    assert len(failed) == 1
    assert failed[0]["cause"]
    assert not left_of(run_id)
