"""The Maru adapter on a real vLLM, end to end, with a stand-in for Maru and its servers: keys, servers, pool, counters,
log lines. That real Maru behaves so is for a run with real Maru to show."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from e2e.tests.engine.conftest import Rig, left_of
from e2e.waits import Outcome, wait

pytestmark = [pytest.mark.engine, pytest.mark.long, pytest.mark.timeout(900)]
HERE = Path(__file__).parent
FAKE = HERE.parent / "unit" / "maru" / "fake_server.py"
MANAGER = """
import glob, time
assert [line for line in open("/proc/mounts") if line.startswith("/dev/pmem") and "dax" in line.split()[3]]
print("ready - listening on 127.0.0.1", flush=True)
time.sleep(3600)
"""
SERVER = f"""
import os, sys
os.execv(sys.executable, [sys.executable, {str(FAKE)!r}, sys.argv[sys.argv.index("--port") + 1], "live"])
"""
ONE_CELL = ("--connector", "maru", "--device", "cpu", "--cell", "layout=NHD,storage_format=layerwise,overlap=off")


def namespaces_allowed() -> bool:
    words = ["unshare", *(["--user", "--map-root-user"] if os.geteuid() else []), "--mount", "true"]
    return subprocess.run(words, capture_output=True, check=False).returncode == 0


@pytest.fixture
def standin(rig, tmp_path):
    if not namespaces_allowed():
        pytest.skip("a DAX file system can't be pretended without mount namespaces")
    for name, text in (("maru-resource-manager", MANAGER), ("maru-server", SERVER)):
        program = tmp_path / "bin" / name
        program.parent.mkdir(exist_ok=True)
        program.write_text(f"#!{sys.executable}\n{text}")
        program.chmod(0o755)
    made = Rig(tmp_path / "state")
    made.environ |= {"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}", "PYTHONPATH": str(HERE / "standin")}
    return made


def test_passes_with_hits_counted_by_the_server_and_loads_read_from_the_log(standin, tmp_path):
    ran = standin(*ONE_CELL, out=tmp_path / "run")
    assert ran.code == 0, ran.said
    (cell,) = ran.cells.values()
    hits = cell["hits"]
    assert hits["connector"] == hits["engine"] == hits["predicted"] > 0
    assert cell["effective"]["connector_build"]["name"] == "maru"
    loads = [load for event in ran.events("connector.evidence") for load in event["loads"]]
    assert {load["storage_format"] for load in loads} == {"layerwise"}
    # Maru's lines come by a logging configuration, which vLLM's import reads: too late for a fork
    how = {event["role"]: event["started"] for event in ran.events("engine.start")}
    assert how == {"baseline": "fork", "connector": "stock"}
    assert left_of(ran.report["run"]["run_id"]) == []


def test_server_that_dies_under_the_engine_is_named_within_a_minute(standin, tmp_path):
    command = standin.command("run", "--out", str(tmp_path / "run"), *ONE_CELL)
    with subprocess.Popen(
        command, env=standin.environ, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as process:
        recording = tmp_path / "run" / "recording.jsonl"
        begun = lambda: recording.exists() and '"cell.begin"' in recording.read_text()  # noqa: E731
        assert wait(begun, dead=lambda: process.poll() is not None, limit_s=300) is Outcome.READY
        children = psutil.Process(process.pid).children(recursive=True)
        server = next(p for p in children if str(FAKE) in " ".join(p.cmdline()))
        server.kill()
        began = time.monotonic()
        said = process.stdout.read()
        assert process.wait(timeout=60) == 4, said
        assert time.monotonic() - began < 60
    assert "maru-server ended with SIGKILL (out of memory?) under a running engine" in " ".join(said.split())
    assert "Traceback" not in said
