"""Connectors that nobody here wrote: one that is right, one that finds nothing, one that serves garbage."""

from __future__ import annotations

import pytest

pytestmark = [pytest.mark.engine, pytest.mark.timeout(1200)]


def test_decode_bench_serves_garbage_and_is_corrupt(rig, tmp_path) -> None:
    ran = rig("--connector", "decode-bench", "--cell", "layout=NHD", out=tmp_path)
    assert ran.code == 1, ran.said
    (cell,) = ran.cells.values()
    assert cell["verdict"] == "corrupt"
    # it counts hits perfectly, and agrees with itself: only the engine without a connector shows it
    assert cell["hits"]["engine"] == cell["hits"]["predicted"] > 0
    assert cell["ttft"]["speedup"] is None


def test_example_connector_is_right_and_passes(rig, tmp_path) -> None:
    ran = rig("--connector", "example", "--cell", "layout=HND", out=tmp_path)
    assert ran.code == 0, ran.said
    (cell,) = ran.cells.values()
    assert cell["oracle"]["kind"] == "split_matched"
    assert cell["oracle"]["max_logprob_diff"] == 0
    assert cell["hits"]["engine"] == cell["hits"]["predicted"] > 0


def test_example_connector_never_finds_whole_blocks_plus_one(rig, tmp_path) -> None:
    ran = rig("--connector", "example", "--cell", "layout=HND", "--lengths", "385", out=tmp_path)
    assert ran.code == 3, ran.said
    (cell,) = ran.cells.values()
    assert (cell["verdict"], cell["reason"]) == ("inconclusive", "no hit")
    assert cell["hits"]["engine"] == 0
