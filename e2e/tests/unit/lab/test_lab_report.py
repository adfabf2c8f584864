"""placement.md, of a benchmark that ran on an H200 and of results that no machine gave."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

from hypothesis import given
from read_html import assert_self_contained
from test_hostile_text import (
    FEW,
    assert_harmless,
    assert_no_formula,
    assert_shows,
    poisoned,
    rows_are_whole,
    shown,
    words,
)

from e2e import cli
from e2e.lab import command, report
from e2e.report import html, markdown, spreadsheet, terminal
from e2e.report.document import Heading
from e2e.report.report_json import plain

RECORDED = Path(__file__).resolve().parents[2] / "recordings" / "h200" / "bench.json.gz"
REGRESSION = {
    "ok": False, "device": "cuda", "versions": {"torch": "2.11.0", "gpu": "NVIDIA H200"},
    "implementations": [
        {"name": "index", "available": True, "why": ""}, {"name": "triton", "available": True, "why": ""},
        {"name": "lmcache/single", "available": False, "why": "No module named 'lmcache'"},
    ],
    "grid": [
        {"placement": name, "format": "blocks_first-HND", "dtype": dtype, "outcome": outcome}
        for name, dtype, outcome in (
            ("index", "float32", "same"), ("triton", "float32", "same"), ("triton", "uint8", "mismatch"),
        )
    ],
    "controls": [{"outcome": "same", "expected": "same"}, {"outcome": "same", "expected": "mismatch"}],
    "defect": {
        "elements": 262144,
        "table": [{"placement": "walk", "format": "blocks_first-HND", "slots": "0 to 15", "mismatches": 6112}],
    },
}  # fmt: skip


def bench() -> dict:
    with gzip.open(RECORDED, "rt", encoding="utf-8") as file:
        return json.load(file)


def test_a_mismatch_in_one_dtype_shows(tmp_path, capsys):
    report.write(REGRESSION, bench(), directory=tmp_path)
    text = (tmp_path / "placement.md").read_text()
    lines = text.splitlines()
    assert lines[0] == "# Placement: MISMATCH"
    assert "| blocks_first-HND | same | mismatch |" in lines
    assert "- lmcache/single unavailable: No module named 'lmcache'" in lines
    assert "Controls: 1 of 2 wrong or right views told apart." in lines
    assert "| walk | blocks_first-HND | 0 to 15 | 6112 |" in lines
    assert "## Speed: 4,233 GB/s copied on NVIDIA H200" in lines
    assert "- at least 90 % of the copy bandwidth at 32x8x128, 16384 tokens: met (worst 0.92)" in lines
    (row,) = [line for line in lines if line.startswith("| 32x8x128 | 16384 | blocks_first-HND |")]
    assert "(92%)" in row
    out = capsys.readouterr().out
    assert "Placement: MISMATCH" in out
    assert out.splitlines()[-1] == f"report: {tmp_path / 'placement.md'}"


def test_the_page_draws_each_way_beside_a_plain_copy(tmp_path):
    timed = bench()
    shown = report.document(REGRESSION, timed)
    at = next(n for n, block in enumerate(shown) if isinstance(block, Heading) and block.level == 2)
    page = report.page(shown, timed)
    assert [*page[: at + 1], *page[at + 2 :]] == [*shown]
    for word in ("index, per layer", "triton, all layers", "32x8x128, 16384 tokens", "a plain copy"):
        assert word in page[at + 1].svg
    assert "maru_kv_ops" not in page[at + 1].svg  # was not there, so nothing was measured
    assert report.page(report.document(REGRESSION, None), None) == report.document(REGRESSION, None)


def test_a_mismatch_stays_one_where_it_can_t_be_written(tmp_path, monkeypatch, capfd):
    monkeypatch.setattr(command, "_require_torch", lambda python: None)
    monkeypatch.setattr(command, "_run", lambda module, *args, **more: REGRESSION)
    (tmp_path / "placement.md" / "x").mkdir(parents=True)
    assert cli.execute(["placement", "--device", "cpu", "--out", str(tmp_path)]) == 1
    assert "it was judged with exit code 1, but can't write" in capfd.readouterr().err


def test_without_a_gpu_what_is_missing_is_said():
    text = markdown.render(report.document({**REGRESSION, "ok": True}, None))
    assert text.startswith("# Placement: all as the reference")
    assert "Not run, for want of a CUDA GPU" in text


@FEW
@given(words())
def test_hostile_text(draw):
    found = poisoned(REGRESSION, draw, keep=("outcome", "expected"))
    timed = bench()
    timed = poisoned({**timed, "rows": timed["rows"][:6]}, draw, keep=("outcome",))
    blocks = report.document(found, timed)
    text = markdown.render(blocks)
    assert_harmless(text)
    assert rows_are_whole(text)
    assert_shows(shown(lambda on: terminal.show(blocks, on=on)))
    assert_self_contained(html.render(report.page(blocks, timed)))
    assert_no_formula(spreadsheet.table([plain(row) for row in report.rows(found, timed)]))
