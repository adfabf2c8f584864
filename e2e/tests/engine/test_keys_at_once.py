"""Two engine keys at once on real engines: verdicts as of one after the other, no time, and a kill amid two cells."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from e2e.base.judgement import NOT_TIMED
from e2e.tests.engine.conftest import Ran, Rig, left_of
from e2e.tests.engine.tiny import tiny_model
from e2e.tests.kill.test_kill_rig import _events, _wait_for

pytestmark = [pytest.mark.engine, pytest.mark.long, pytest.mark.timeout(1800)]
#: Both layouts, so two engine keys, with two cells each.
WORDS = ("--cell", "storage_format=chunkwise,placement=index", "--prompts", "2", "--max-tokens", "4",
         "--side-by-side", "4")  # fmt: skip


def places(events: list[dict], kind: str) -> list[str]:
    return [event["data"]["cell"] for event in events if event["kind"] == kind]


def under_way(events: list[dict]) -> set[str]:
    return {*places(events, "cell.begin")} - {*places(events, "cell.end")}


def passed(ran: Ran) -> None:
    assert ran.code == 0, ran.said
    assert len(ran.cells) == 4
    for cell in ran.cells.values():
        assert (cell["verdict"], cell["first_generation"]) == ("pass", "identical")
        assert cell["oracle"]["max_logprob_diff"] == 0
        assert cell["hits"]["predicted"] == cell["hits"]["engine"] == cell["hits"]["connector"] > 0


def test_four_cells_of_two_keys_at_once_all_pass_and_none_has_a_time(tmp_path: Path) -> None:
    ran = Rig(tmp_path / "state")("--model", tiny_model(), *WORDS, out=tmp_path / "out")
    passed(ran)
    assert "not timed" in ran.said
    assert not re.search(r"\d x\b|TTFT per prompt length", (tmp_path / "out" / "report.md").read_text())
    for cell in ran.cells.values():
        assert {name: value for name, value in cell["ttft"].items() if value and name != "by_length"} == {
            "no_speedup": NOT_TIMED
        }
    kinds = [event["kind"] for event in _events(tmp_path / "out")]
    assert kinds.index("engine.ready") > [at for at, kind in enumerate(kinds) if kind == "engine.start"][3], "at once"
    for effective in (config["effective"] for config in ran.events("engine.config")):
        assert effective["threads"] == ran.events("engine.config")[0]["effective"]["threads"], "cores are parted alike"


@pytest.mark.kill
def test_a_kill_amid_two_cells_loses_none_and_judges_none_twice(tmp_path: Path) -> None:
    rig, out = Rig(tmp_path / "state"), tmp_path / "out"
    with (tmp_path / "said.txt").open("w") as said:
        command = rig.command("run", "--out", str(out), "--model", tiny_model(), *WORDS)
        process = subprocess.Popen(command, env=rig.environ, stdout=said, stderr=subprocess.STDOUT)
        try:
            _wait_for(lambda: len(under_way(_events(out))) > 1, 900, "two cells under way", every_s=0.02)
        finally:
            process.kill()
            process.wait(30)
    first = _events(out)
    (run_id,) = (event["data"]["run_id"] for event in first if event["kind"] == "run.begin")
    assert {cell.split("-")[0] for cell in under_way(first)} == {"NHD", "HND"}
    _wait_for(lambda: not left_of(run_id), 60, "the end of the killed run's engines")

    resumed = rig("--resume", out=out)
    passed(resumed)
    again = places(_events(out)[len(first) :], "cell.begin")
    assert sorted([*again, *places(first, "cell.end")]) == sorted(resumed.cells), "each to its end once"
    assert not any(left_of(event["data"]["run_id"]) for event in _events(out) if event["kind"] == "run.begin")
