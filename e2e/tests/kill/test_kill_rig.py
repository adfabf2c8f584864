"""kill -9 of the rig in mid-run on a real engine: nothing stays, the recording is good, --resume finishes."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path

import pytest

from e2e.tests.engine.conftest import Rig, left_of

pytestmark = [pytest.mark.engine, pytest.mark.kill, pytest.mark.timeout(900)]
CELLS = ("--cell", "layout=NHD,storage_format=chunkwise,placement=index")


def _events(out: Path) -> list[dict]:
    path = out / "recording.jsonl"
    lines = path.read_text().split("\n")[:-1] if path.exists() else []
    return [json.loads(line) for line in lines]


def _wait_for(condition, limit_s: float, what: str, *, every_s: float = 0.2) -> None:
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline, f"{what} did not come within {limit_s:g} s"
        time.sleep(every_s)


def test_killed_run_is_judged_resumed_and_leaves_nothing(tmp_path) -> None:
    rig, out = Rig(tmp_path / "state"), tmp_path / "out"
    with (tmp_path / "said.txt").open("w") as said:
        process = subprocess.Popen(
            rig.command("run", "--out", str(out), *CELLS), env=rig.environ, stdout=said, stderr=subprocess.STDOUT
        )
        try:
            _wait_for(lambda: any(e["kind"] == "cell.end" for e in _events(out)), 300, "the end of the first cell")
        finally:
            process.kill()
            process.wait(30)
    first = _events(out)
    run_id = next(e["data"]["run_id"] for e in first if e["kind"] == "run.begin")
    _wait_for(lambda: not left_of(run_id), 60, "the end of the killed run's engines")

    judged = rig.judge(out)
    assert judged.code == 3, judged.said
    assert sorted(cell["verdict"] for cell in judged.cells.values()) == ["inconclusive", "pass"]

    resumed = rig("--resume", out=out)
    assert resumed.code == 0, resumed.said
    assert [cell["verdict"] for cell in resumed.cells.values()] == ["pass", "pass"]
    second = _events(out)[len(first) :]
    done = next(e["data"]["cell"] for e in first if e["kind"] == "cell.end")
    assert done not in {e["data"]["cell"] for e in second if e["kind"] == "cell.begin"}
    prompts = lambda events: {e["data"]["digest"] for e in events if e["kind"] == "expect.hit"}  # noqa: E731
    assert not prompts(first) & prompts(second), "a resumed run needs a new nonce"
    assert not left_of(next(e["data"]["run_id"] for e in second if e["kind"] == "run.begin"))
