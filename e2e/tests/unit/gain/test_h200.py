"""What docs/gpu.md says of an H200 at the pace of the machine is what its recordings say, judged again."""

import re
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


def test_first_tokens_came_when_docs_say_and_from_where_they_should():
    printed = re.split(r"\n\n", (H200 / "ttft.txt").read_text().strip())
    assert len(printed) == 10
    gained, against_limit, stored = {}, {}, {}
    for row in printed:
        tokens, at_once = map(int, re.match(r"(\d+) tokens, (\d) at once", row).groups())
        other, otherwise = map(int, re.search(r"(\d+) other answers, (\d+) served otherwise", row).groups())
        assert otherwise == 0
        assert at_once > 1 or other == 0
        of = gained.setdefault((tokens, at_once), [])
        of += map(float, re.findall(r"baseline / \w+ external +([\d.]+)", row))
        against_limit.setdefault(tokens, []).extend(map(float, re.findall(r"1\.15 copy\) +([\d.]+)", row)))
        stored.setdefault((tokens, at_once), []).extend(map(float, re.findall(r"cold / baseline +([\d.]+)", row)))
    spans = {where: (round(min(each), 1), round(max(each), 1)) for where, each in gained.items()}
    assert spans[16393, 1] == (6.7, 8.3)
    assert spans[32777, 1] == (9.2, 9.8)
    assert {where: round(max(each), 2) for where, each in against_limit.items()} == {
        4105: 1.08,
        16393: 1.03,
        32777: 0.96,
    }
    assert [round(each, 2) for each in sorted(stored[16393, 1])] == [1.0, 1.07, 1.08, 1.22]
    assert [round(each, 2) for each in sorted(stored[32777, 1])] == [1.06, 1.13, 1.14, 1.17]
