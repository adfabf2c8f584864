"""What docs/gpu.md says of an H200 at the pace of the machine is what its recordings say, judged again."""

from pathlib import Path

import pytest

from e2e.judge.cells import judge
from e2e.judge.gain import judge_gain
from e2e.recording.journal import read
from e2e.report.overhead import overhead

H200 = Path(__file__).resolve().parents[2] / "recordings" / "h200"


@pytest.mark.parametrize(
    ("name", "cells", "exit_code", "gb_a_second"), [("8b-gain", 8, 3, 54.6), ("8b-overlap", 2, 0, 53.9)]
)
def test_a_comparison_answers_as_it_did(name, cells, exit_code, gb_a_second):
    found = judge_gain(read(H200 / f"{name}.jsonl.gz"))
    assert [cell.verdict.value for cell in found.cells.cells] == ["pass"] * cells
    assert found.exit_code == exit_code
    assert round(found.copy_speed / 1e9, 1) == gb_a_second


@pytest.mark.parametrize(("name", "cells", "ratio"), [("8b-run", 4, 1.20), ("side-by-side", 16, 1.14)])
def test_a_run_passes_as_it_did_and_took_what_it_took(name, cells, ratio):
    events = list(read(H200 / f"{name}.jsonl.gz"))
    assert [cell.verdict.value for cell in judge(events).cells] == ["pass"] * cells
    took = (events[-1].t_ns - events[0].t_ns) / 1e9
    assert overhead(events, total_s=took)["ratio"] == pytest.approx(ratio, abs=0.01)
