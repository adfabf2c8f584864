"""A run that is stopped between two cells on a real engine: what it saw is judged and reported, and nothing stays."""

from __future__ import annotations

import signal
import subprocess

import pytest
from junitparser import JUnitXml

from e2e.tests.engine.conftest import Ran, Rig, left_of
from e2e.tests.kill.test_kill_rig import CELLS, _events, _wait_for

pytestmark = [pytest.mark.engine, pytest.mark.kill, pytest.mark.timeout(900)]


def test_stopped_run_reports_the_cell_that_it_had_judged(tmp_path) -> None:
    rig, out = Rig(tmp_path / "state"), tmp_path / "out"
    with (tmp_path / "said.txt").open("w") as said:
        process = subprocess.Popen(
            rig.command("run", "--out", str(out), *CELLS), env=rig.environ, stdout=said, stderr=subprocess.STDOUT
        )
        try:
            _wait_for(lambda: (out / "report.json").exists(), 300, "the report after the first cell")
            process.send_signal(signal.SIGINT)
            assert process.wait(90) == 130, (tmp_path / "said.txt").read_text()
        finally:
            process.kill()
            process.wait(30)
    run_id = next(e["data"]["run_id"] for e in _events(out) if e["kind"] == "run.begin")
    assert not left_of(run_id)
    ran = Ran(130, (tmp_path / "said.txt").read_text(), out)
    assert [cell["verdict"] for cell in ran.cells.values()] == ["pass", "inconclusive"]
    assert ran.report["run"]["attempts"][-1]["ended"] is False
    failed = {case.name: bool(case.result) for suite in JUnitXml.fromfile(str(out / "junit.xml")) for case in suite}
    assert [failed[cell] for cell in ran.cells] == [False, True]
    assert "did not end" in (out / "report.md").read_text().splitlines()[0]
    assert "stopped by a signal; maru-e2e run --resume" in ran.said
    assert "[1/2]" in ran.said
