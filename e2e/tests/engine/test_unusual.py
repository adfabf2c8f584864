"""The rig on connectors that are right but unusual: never called wrong. And on two that are not: undeclared loss, and
blocks that are never freed."""

from __future__ import annotations

from pathlib import Path

import pytest

CASES = Path(__file__).parents[1] / "cases"
pytestmark = [pytest.mark.engine, pytest.mark.long, pytest.mark.timeout(900)]


@pytest.fixture
def run(rig, tmp_path):
    def run_case(case: str | Path, *words: str, cell: str = "layout=HND"):
        told = ("--connector", str(CASES / case), "--cell", cell, "--lengths", "300,700", *words)
        return rig(*told, out=tmp_path / f"run of {Path(case).stem}")

    return run_case


def edited(case: str, tmp_path: Path, old: str, new: str) -> Path:
    text = (CASES / case).read_text()
    assert old in text
    (tmp_path / "edited.toml").write_text(text.replace(old, new))
    return tmp_path / "edited.toml"


@pytest.mark.parametrize("case", ["async_load.toml", "round_down.toml", "misses.toml"])
def test_an_unusual_connector_passes(run, case):
    ran = run(case)
    assert ran.code == 0, ran.said
    (cell,) = ran.cells.values()
    assert cell["oracle"]["max_logprob_diff"] == 0
    assert cell["hits"]["engine"] > 0


def test_what_rounds_down_further_than_it_says_is_a_partial_hit(run, tmp_path):
    ran = run(edited("round_down.toml", tmp_path, "short_by = 48", "short_by = 0"))
    assert ran.code == 3, ran.said
    (cell,) = ran.cells.values()
    assert cell["reason"] == "partial hit"


def test_a_right_connector_passes_with_two_at_once(run):
    ran = run("good.toml", cell="layout=HND,concurrency=2")
    assert ran.code == 0, ran.said
    assert "nothing could be compared" not in ran.said


@pytest.mark.parametrize(
    ("policy", "code", "reason"),
    [("recompute", 3, "load failed"), ("fail", 4, "request failed")],
)
def test_a_failed_load_that_is_reported_is_never_corrupt(run, tmp_path, policy, code, reason):
    ran = run(edited("fail_once.toml", tmp_path, '"recompute"', f'"{policy}"'))
    assert (ran.code, {cell["reason"] for cell in ran.cells.values()}) == (code, {reason}), ran.said


def test_declared_loss_is_measured_and_undeclared_loss_is_corrupt(run, tmp_path):
    told = run("lossy.toml")
    assert told.code == 3, told.said
    (cell,) = told.cells.values()
    assert cell["reason"] == "lossy by declaration"
    assert cell["oracle"]["max_logprob_diff"] > 0
    silent = run(edited("lossy.toml", tmp_path, ", lossy = true", ""))
    assert silent.code == 1, silent.said


def test_blocks_that_are_never_freed_are_named(run):
    ran = run("never_freed.toml", "--request-limit-s", "25")
    assert ran.code == 4, ran.said
    (cell,) = ran.cells.values()
    assert cell["reason"] == "engine hung"
    cause = cell["findings"][0]["evidence"]["cause"]
    assert "blocks are not freed" in cause
    assert "Running: 0 reqs, Waiting: 1 reqs" in cause
    assert "raise the limit" not in cause
