"""Log lines and counters as Maru gives them: what is a load, what betrays a failure, how many tokens were loaded."""

import json
from pathlib import Path

import pytest

from e2e.connectors.maru.witness import bytes_per_token, counters, read_log

RECORDED = Path(__file__).parents[2] / "recordings" / "maru"
SMOLLM2 = {"num_layers": 30, "heads": 3, "head_size": 64, "dtype": "bfloat16"}


def told(name, layers=30, **defaults):
    return read_log(iter((RECORDED / name).read_text().splitlines()), defaults=defaults, layers=layers)


def test_july_loads_layer_by_layer_whatever_was_asked_for():
    found = told("july-hit.log", storage_format="chunkwise", load="sync", overlap="off")
    assert [load.tokens for load in found.loads] == [512, 1024]
    assert [load.settings["storage_format"] for load in found.loads] == ["layerwise", "layerwise"]
    assert found.loads[0].as_json(1) == {
        "id": 1, "request": "cmpl-r1.0-0-1a2b3c4d", "tokens": 512, "failed": False, "storage_format": "layerwise",
        "load": "sync", "overlap": "off", "layers": 30, "places": 1,
    }  # fmt: skip
    assert found.failed == {"load_failures": 0, "store_failures": 0}


def test_vanished_object_is_a_failed_load_although_the_connector_says_loaded():
    found = told("july-vanished.log")
    assert found.failed["load_failures"] == 2
    assert [load.failed for load in found.loads] == [True]


def test_fewer_layers_than_the_model_has_is_a_failed_load_by_itself():
    lines = [line for line in (RECORDED / "july-vanished.log").read_text().splitlines() if "aborting" not in line]
    lines = [line for line in lines if "miss" not in line]
    assert [load.failed for load in read_log(iter(lines), defaults={}, layers=30).loads] == [True]
    assert [load.failed for load in read_log(iter(lines), defaults={}, layers=3).loads] == [False]


def test_a_request_that_is_looked_up_twice_is_one_load_and_overlap_is_told():
    found = told("current-overlap.log", storage_format="chunkwise", load="async", overlap="on")
    assert [load.request for load in found.loads] == ["cmpl-r1.0-0-1a2b3c4d", "cmpl-r1.1-0-99aa00bb"]
    first, second = found.loads
    assert (first.settings["overlap"], first.failed) == ("on", False)
    assert (second.settings["overlap"], second.settings["storage_format"], second.failed) == ("off", "chunkwise", True)
    assert found.failed == {"load_failures": 1, "store_failures": 0}


def test_placement_is_what_the_line_says():
    found = told("current-sync.log")
    assert [load.settings["placement"] for load in found.loads] == ["kernel", "index"]
    assert found.failed == {"load_failures": 0, "store_failures": 1}
    assert found.errors == ["Maru save error: Cannot allocate page for key kv_0123456789abcdef"]


def test_lines_that_are_not_marus_betray_nothing():
    found = read_log(iter(["INFO vLLM: Recovered from KV load failure, recomputing 3 blocks"]), defaults={})
    assert found.failed == {"load_failures": 0, "store_failures": 0}


def test_hit_tokens_come_from_bytes():
    operations = json.loads((RECORDED / "stats-july.json").read_text())["stats_manager"]["clients"]["/pool"]
    per_token = bytes_per_token(SMOLLM2)
    assert per_token == 23040
    assert counters(operations["operations"], bytes_per_token=per_token) == {
        "loaded_bytes": 11796480, "miss_chunks": 0, "hit_tokens": 512, "stored_bytes": 11796482,
    }  # fmt: skip


def test_a_batch_found_in_part_is_a_miss():
    batch = {"batch_retrieve": {"count": 3, "hit_count": 1, "miss_count": 1, "total_bytes": 23040 * 256}}
    assert counters(batch, bytes_per_token=23040) == {"loaded_bytes": 5898240, "miss_chunks": 2, "hit_tokens": 256}


@pytest.mark.parametrize("lacking", list(SMOLLM2))
def test_without_the_workers_geometry_no_hits_are_claimed(lacking):
    assert bytes_per_token({key: value for key, value in SMOLLM2.items() if key != lacking}) is None
    retrieved = {"retrieve": {"count": 1, "hit_count": 1, "miss_count": 0, "total_bytes": 10}}
    assert "hit_tokens" not in counters(retrieved, bytes_per_token=None)


def test_no_counter_is_no_zero():
    assert counters({}, bytes_per_token=23040) == {}
