"""The rig on a real engine with planted faults: each is caught and located, and its clean twin passes."""

from __future__ import annotations

import json

import pytest

from e2e.tests.engine.conftest import Rig

pytestmark = [pytest.mark.engine, pytest.mark.timeout(1200)]
FAULTS = ("physical_view_omitted", "bit_flip", "stale_object", "overlap_not_waited", "failed_load_swallowed")


def test_a_few_faults_on_one_cell(tmp_path) -> None:
    rig, out = Rig(tmp_path / "state"), tmp_path / "out"
    words = [word for fault in FAULTS for word in ("--fault", fault)]
    cell = "layout=NHD,storage_format=layerwise,overlap=on,placement=kernel"
    ran = rig("--cell", cell, *words, out=out, command="faults")
    assert ran.code == 0, ran.said
    board = json.loads((out / "scoreboard.json").read_text())
    rows = {row["fault"]: row for row in board["rows"]}
    assert set(rows) == set(FAULTS)
    assert {row["outcome"] for row in rows.values()} == {"caught"}
    assert all(row["located"] and "digests" in row["checks"] for row in rows.values())
    assert rows["bit_flip"]["checks"] == ["logprobs", "digests"], "one bit of one layer moves no token, but a logprob"
    assert (board["alarms"], board["clean_cells"], board["replays"]) == (0, 1, 7)
    by_id = {cell["id"]: cell for cell in ran.report["cells"]}
    assert all(by_id[name]["ttft"]["speedup"] is None for name in by_id if "fault" in name)
