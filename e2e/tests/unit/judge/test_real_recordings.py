"""Recordings of real runs on one NVIDIA H200 (vLLM 0.23.0, torch 2.11, SmolLM2-135M, bfloat16), judged again.

What was left out of them is said in the README beside them.
"""

from __future__ import annotations

import shutil
from itertools import product
from pathlib import Path

import pytest

from e2e import cli
from e2e.base.event import Event
from e2e.base.gain import UNSEEN
from e2e.base.verdict import Reason, Verdict
from e2e.judge import judge
from e2e.judge.gain import judge_gain
from e2e.recording.journal import read

FOLDER = Path(__file__).resolve().parents[2] / "recordings" / "h200"
CLEAN = ("HND-chunkwise-overlap_off-index", "HND-chunkwise-overlap_on-kernel")
DEFECT = "HND-chunkwise-overlap_on-kernel-fault_physical_view_omitted"


@pytest.fixture(scope="module")
def defect() -> list[Event]:
    return read(FOLDER / "defect.jsonl.gz")


def test_the_original_defect_on_a_gpu(defect):
    """The kernel reads head count and page size swapped under HND: fast, HTTP 200, wrong text."""
    cells = {cell.id: cell for cell in judge(defect).cells}
    for name in CLEAN:
        assert cells[name].verdict is Verdict.PASS
        assert cells[name].oracle.max_logprob_diff == 0
        assert cells[name].first_generation == "identical"
        assert cells[name].hits.predicted == cells[name].hits.engine == cells[name].hits.connector == 6144
        assert cells[name].ttft.speedup < 1, "storing took most of what cold against external showed"
        assert cells[name].ttft.store_cost > 1
    found = cells[DEFECT]
    assert (found.verdict, found.reason) == (Verdict.CORRUPT, Reason.TOKENS_DIFFER)
    assert found.ttft.speedup is None
    assert found.ttft.claimed_speedup == pytest.approx(0.165592756 / found.ttft.external_s)
    assert found.hits.engine == 6144, "vLLM's counters saw nothing"


def test_without_its_baseline_nothing_passes(defect):
    alone = [event for event in defect if "baseline" not in str(event.data.get("engine", ""))]
    assert all(cell.verdict is not Verdict.PASS for cell in judge(alone).cells)


@pytest.mark.parametrize("layout", ["NHD", "HND"])
def test_gain_of_the_kernel_over_indexing_can_not_be_seen_where_copying_takes_all_the_time(layout):
    found = judge_gain(read(FOLDER / f"gain-{layout.lower()}.jsonl.gz"))
    assert {cell.verdict for cell in found.cells.cells} == {Verdict.PASS}
    overall = {(a.branch, a.concurrency): a for a in found.answers if a.length is None}
    branches = product(("chunkwise", "layerwise"), ("off", "on"), (1, 8))
    assert overall.keys() == {(f"{layout}-{form}-overlap_{overlap}", at_once) for form, overlap, at_once in branches}
    assert {(a.answer, a.client.pairs, a.left_out) for a in overall.values()} == {(UNSEEN, 20, 0)}
    assert found.exit_code == 3
    alone = [a for a in overall.values() if a.concurrency == 1]
    assert all(a.share.share < 0.01 < 0.1 < a.smallest for a in alone)
    assert {a.share for a in overall.values() if a.concurrency > 1} == {None}, "counted of single requests"


@pytest.mark.parametrize("layout", ["NHD", "HND"])
def test_launches_on_a_gpu_are_tied_to_the_placement(layout):
    found = judge_gain(read(FOLDER / f"gain-{layout.lower()}.jsonl.gz")).launches
    placed = {(each.branch.rpartition("_")[2], each.side): each.placement for each in found}
    assert placed == {("off", "a"): 32, ("off", "b"): 1, ("on", "a"): 90, ("on", "b"): 30}
    assert all(each.device_us > 0 for each in found)


@pytest.mark.parametrize(
    ("name", "words", "code"), [("defect", ["judge"], 0), ("gain-hnd", ["gain", "--judge"], 3)], ids=["judge", "gain"]
)
def test_a_packed_recording_is_judged_where_it_lies(tmp_path, name, words, code):
    """The defect was planted: caught, which is what that run was to show. The gain could not be seen there."""
    shutil.copy(FOLDER / f"{name}.jsonl.gz", tmp_path / "recording.jsonl.gz")
    assert cli.execute([*words, str(tmp_path)]) == code
    assert not (tmp_path / "recording.jsonl").exists()
