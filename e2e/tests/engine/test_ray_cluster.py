"""A run on a Ray cluster: a node that dies in mid-run costs no cell, and a driver that dies leaves nothing."""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from e2e.stack.owned import MARK, marked
from e2e.tests.engine.conftest import Rig, left_of
from e2e.tests.engine.tiny import tiny_model
from e2e.tests.kill.two_nodes import two_nodes
from e2e.waits import Outcome, wait

pytestmark = [pytest.mark.engine, pytest.mark.kill, pytest.mark.long, pytest.mark.timeout(1800)]
TMP = tempfile.gettempdir()


def words() -> tuple[str, ...]:
    """Eight cells on each of two engine keys."""
    return ("--model", tiny_model(), "--prompts", "1", "--max-tokens", "4")


def kinds(path: Path) -> list[tuple[str, dict]]:
    lines = path.read_text().split("\n")[:-1] if path.exists() else []
    return [(event["kind"], event["data"]) for event in map(json.loads, lines)]


def cells(path: Path, kind: str) -> list[str]:
    return [data["cell"] for found, data in kinds(path) if found == kind]


def said_by(path: Path) -> str:
    return path.read_text() if path.exists() else ""


@contextmanager
def driver(rig: Rig, out: Path, **environ: str) -> Iterator[subprocess.Popen]:
    command = rig.command("run", "--executor", "ray", "--out", str(out), *words())
    with out.with_name("said.txt").open("w") as said:
        process = subprocess.Popen(command, env=rig.environ | environ, stdout=said, stderr=subprocess.STDOUT)
        try:
            yield process
        finally:
            process.kill()
            process.wait(30)


def wait_for(condition, limit_s: float, what: str, process: subprocess.Popen, said: Path) -> None:
    outcome = wait(condition, limit_s=limit_s, dead=lambda: process.poll() is not None)
    assert outcome is Outcome.READY, f"{what}: {outcome.value}\n{said_by(said)}"


def share_on(raylet: int) -> Path | None:
    """The recording of the share whose process this node runs, by its name in the run's folder."""
    for process in psutil.Process(raylet).children(recursive=True):
        try:
            line = process.cmdline()
        except psutil.Error:
            continue
        if line[1:4] == ["-m", "maru_e2e", "share"]:
            return Path(f"shares/{line[5]}-of-{line[6]}/recording.jsonl")
    return None


def test_a_node_that_dies_costs_no_cell_and_none_is_judged_twice(tmp_path, monkeypatch) -> None:
    pytest.importorskip("ray")
    rig, out, said = Rig(tmp_path / "state"), tmp_path / "out", tmp_path / "said.txt"
    alone = rig(*words(), out=tmp_path / "alone")
    assert alone.code == 0, alone.said
    monkeypatch.setenv("XDG_STATE_HOME", rig.environ["XDG_STATE_HOME"])
    with two_nodes() as (cluster, raylets), driver(rig, out, RAY_ADDRESS=cluster.address) as process:
        dying: list = []

        def one_is_amid() -> bool:
            for pid, node in raylets.items():
                if (share := share_on(pid)) and cells(out / share, "cell.end"):
                    dying[:] = [node, out / share]
            return bool(dying)

        wait_for(one_is_amid, 900, "the end of a first cell on a node", process, said)
        node, share = dying
        cluster.remove_node(node, allow_graceful=False)
        code = process.wait(900)
    told = said_by(said)
    assert code == 0, told
    assert "another task goes on with it" in told
    report = json.loads((out / "report.json").read_text())
    verdicts = {cell["id"]: cell["verdict"] for cell in report["cells"]}
    assert verdicts == {name: cell["verdict"] for name, cell in alone.cells.items()}
    assert len(verdicts) == 16
    assert Counter(cells(out / "recording.jsonl", "cell.end")) == dict.fromkeys(verdicts, 1)
    begun = [data["attempt"] for kind, data in kinds(share) if kind == "run.begin"]
    assert begun == [1, 2], "what the dead node had was gone on with"
    runs = [data["run_id"] for kind, data in kinds(out / "recording.jsonl") if kind == "run.begin"]
    assert len(set(runs)) == 3
    for run_id in runs:
        assert wait(lambda run_id=run_id: not left_of(run_id), limit_s=90) is Outcome.READY, left_of(run_id)


def test_a_driver_that_is_killed_leaves_nothing_and_is_continued(tmp_path) -> None:
    pytest.importorskip("ray")
    rig, out, said = Rig(tmp_path / "state"), tmp_path / "out", tmp_path / "said.txt"
    with driver(rig, out) as process:

        def is_amid() -> bool:
            return any(cells(path, "cell.end") for path in out.glob("shares/*/recording.jsonl"))

        wait_for(is_amid, 900, "the end of a first cell", process, said)
        ours = psutil.Process(process.pid).children(recursive=True)
        ray_id = {value for each in ours if (value := _mark(each)).startswith("ray-")}
        process.kill()
        process.wait(30)
    (ray_id,) = ray_id
    first = next(path for path in out.glob("shares/*/recording.jsonl") if cells(path, "cell.end"))
    (run_id,) = (data["run_id"] for kind, data in kinds(first) if kind == "run.begin")
    assert wait(lambda: not left_of(run_id), limit_s=120) is Outcome.READY, left_of(run_id)
    assert wait(lambda: not [*marked(MARK, ray_id)], limit_s=120) is Outcome.READY, [*marked(MARK, ray_id)]
    folder = Path(TMP, f"maru-e2e-{ray_id}")
    assert wait(lambda: not folder.exists(), limit_s=60) is Outcome.READY
    ended = cells(first, "cell.end")

    resumed = rig("--resume", out=out)
    assert resumed.code == 0, resumed.said
    assert {cell["verdict"] for cell in resumed.cells.values()} == {"pass"}
    assert len(resumed.cells) == 16
    again = cells(out / "recording.jsonl", "cell.end")
    assert Counter(again) == dict.fromkeys(resumed.cells, 1), "what had ended was not played again"
    assert {*ended} <= {*again}


def _mark(process: psutil.Process) -> str:
    try:
        return process.environ().get(MARK, "")
    except psutil.Error:
        return ""
