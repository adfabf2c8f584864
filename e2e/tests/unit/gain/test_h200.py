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
    ("name", "cells", "exit_code", "gb_a_second"), [("8b-gain", 8, 3, 54.6), ("8b-overlap", 2, 3, 54.8)]
)
def test_a_comparison_answers_as_it_did(name, cells, exit_code, gb_a_second):
    found = judge_gain(read(H200 / f"{name}.jsonl.gz"))
    assert [cell.verdict.value for cell in found.cells.cells] == ["pass"] * cells
    assert found.exit_code == exit_code
    assert round(found.copy_speed / 1e9, 1) == gb_a_second


@pytest.mark.parametrize(
    ("name", "cells", "ratio"), [("8b-run", 4, 1.24), ("side-by-side", 16, 1.14), ("ring", 4, 1.15)]
)
def test_a_run_passes_as_it_did_and_took_what_it_took(name, cells, ratio):
    events = list(read(H200 / f"{name}.jsonl.gz"))
    assert [cell.verdict.value for cell in judge(events).cells] == ["pass"] * cells
    took = (events[-1].t_ns - events[0].t_ns) / 1e9
    assert overhead(events, total_s=took)["ratio"] == pytest.approx(ratio, abs=0.01)


def test_an_overlapped_load_hides_what_docs_say():
    found = judge_gain(read(H200 / "8b-overlap.jsonl.gz"))
    (part,) = [each.share for each in found.answers if each.concurrency == 1 and each.length is None]
    assert part.share == pytest.approx(0.307, abs=0.001)
    told = {(each.side, each.length): (round(each.share, 3), round(each.all_us / 1e3)) for each in found.timelines}
    assert told["a", 16393] == (0.0, 87)
    assert told["b", 16393] == (0.001, 57)


def test_first_tokens_came_when_docs_say_and_from_where_they_should():
    printed = re.split(r"\n\n", (H200 / "ttft.txt").read_text().strip())
    assert len(printed) == 12
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
    assert spans[16393, 1] == (7.3, 7.5)
    assert spans[32777, 1] == (9.7, 10.4)
    limits = {where: round(max(each), 2) for where, each in against_limit.items()}
    assert limits == {4105: 1.06, 16393: 0.99, 32777: 0.98}
    costs = {where: (round(min(each), 2), round(max(each), 2)) for where, each in stored.items()}
    assert costs[16393, 1] == (1.01, 1.04)
    assert costs[32777, 1] == (1.01, 1.03)
    assert costs[16393, 4] == (1.02, 1.08)
    assert costs[32777, 4] == (1.01, 1.10)


def test_what_the_connector_moves_is_at_the_pace_that_docs_say():
    pinned = (H200 / "transfer.txt").read_text().partition("ring;")[0]
    loads, stores = (
        [int(each) for each in re.findall(rf"{what} +[\d.]+ GB/s \( *(\d+)%\)", pinned)] for what in ("load", "store")
    )
    assert (len(loads), min(loads), max(loads)) == (12, 87, 94)
    assert (len(stores), min(stores), max(stores)) == (12, 78, 86)


def test_every_fault_was_caught_with_stores_beside_the_compute():
    rows = re.findall(r"^(\w+) +1 of 1 +(\d) +(\d)", (H200 / "faults.txt").read_text(), re.MULTILINE)
    assert len(rows) == 55
    assert [name for name, *seen in rows if seen == ["0", "0"]] == ["bit_flip"]
