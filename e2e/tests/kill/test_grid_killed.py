"""kill -9 of the rig amid a request of a cell in mid grid, then --resume: the verdicts of a run that nobody stopped."""

from __future__ import annotations

import subprocess
from pathlib import Path

import psutil
import pytest

from e2e.tests.engine.conftest import Ran, Rig, left_of
from e2e.tests.engine.tiny import tiny_model
from e2e.tests.kill.test_kill_rig import _events, _wait_for

pytestmark = [pytest.mark.engine, pytest.mark.kill, pytest.mark.long, pytest.mark.timeout(1800)]
#: Of sixteen cells on two engine keys.
AMID = 7


def verdicts(ran: Ran) -> dict[str, tuple]:
    return {name: (cell["verdict"], cell["reason"], cell["first_generation"]) for name, cell in ran.cells.items()}


def cells(events: list[dict], kind: str) -> list[str]:
    return [event["data"]["cell"] for event in events if event["kind"] == kind]


def ports(run_id: str) -> set[int]:
    found = set()
    for process in psutil.process_iter():
        try:
            if process.environ().get("MARU_E2E_RUN") == run_id:
                found |= {each.laddr.port for each in process.net_connections() if each.status == psutil.CONN_LISTEN}
        except psutil.Error:
            continue
    return found


def test_a_grid_that_was_killed_has_the_verdicts_of_a_whole_one(tmp_path: Path) -> None:
    rig, out, words = Rig(tmp_path / "state"), tmp_path / "killed", ("--model", tiny_model(), "--max-tokens", "8")
    whole = rig(*words, out=tmp_path / "whole")
    assert whole.code == 0, whole.said
    assert len(whole.cells) > 2 * AMID

    def amid() -> bool:
        events = _events(out)
        return len(cells(events, "cell.begin")) >= AMID and events[-1]["kind"] == "request.sent"

    with (tmp_path / "said.txt").open("w") as said:
        command = rig.command("run", "--out", str(out), *words)
        process = subprocess.Popen(command, env=rig.environ, stdout=said, stderr=subprocess.STDOUT)
        try:
            _wait_for(amid, 900, f"a request of cell {AMID}", every_s=0.02)
            (run_id,) = (event["data"]["run_id"] for event in _events(out) if event["kind"] == "run.begin")
            its = ports(run_id)
        finally:
            process.kill()
            process.wait(30)
    first = _events(out)
    assert its, "engines and indexes listened"
    _wait_for(lambda: not left_of(run_id), 60, "the end of the killed run's engines")
    assert not its & {each.laddr.port for each in psutil.net_connections() if each.status == psutil.CONN_LISTEN}
    assert not list((tmp_path / "state").rglob("*.json")), "and it is forgotten"

    resumed = rig("--resume", out=out)
    assert resumed.code == 0, resumed.said
    assert verdicts(resumed) == verdicts(whole)
    again = cells(_events(out)[len(first) :], "cell.begin")
    assert not {*again} & {*cells(first, "cell.end")}
    assert {*again} | {*cells(first, "cell.end")} == {*whole.cells}
    assert not any(left_of(event["data"]["run_id"]) for event in _events(out) if event["kind"] == "run.begin")
