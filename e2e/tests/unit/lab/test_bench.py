"""The goals of our kernel, from the rows that an NVIDIA H200 gave (torch 2.11, Triton 3.6, LMCache 0.4.5)."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="torch can't be imported here")

from e2e.lab.kernels.bench import goals

RECORDED = Path(__file__).resolve().parents[2] / "recordings" / "h200" / "bench.json.gz"


@pytest.fixture(scope="module")
def bench() -> dict:
    with gzip.open(RECORDED, "rt", encoding="utf-8") as file:
        return json.load(file)


def test_the_goals_were_met(bench):
    found = goals(bench["rows"])
    assert found == bench["goals"]
    assert [(goal["met"], round(goal["worst"], 2)) for goal in found] == [(True, 0.92), (True, 0.45), (True, 0.80)]


def test_a_slower_kernel_would_miss_them(bench):
    ours = {"way": "triton, all layers", "outcome": "ok"}
    slow = [
        {**row, "us": row["us"] * 1.5, "of_copy": row["of_copy"] / 1.5} if ours.items() <= row.items() else row
        for row in bench["rows"]
    ]
    assert [goal["met"] for goal in goals(slow)] == [False, False, False]
