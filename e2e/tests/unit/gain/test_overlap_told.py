"""Whose journals tell whether timed loads overlapped, and to which cell they belong."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from e2e.play.timed import record_loads
from e2e.replay.paired import timed_cell


def told(*rows):
    events = []
    engine = SimpleNamespace(name="e", evidence=SimpleNamespace(loads=lambda: list(rows)))
    record_loads(lambda kind, **data: events.append((kind, data)), engine, "HND", concurrency=1, length=513)
    return events


@pytest.mark.parametrize("cell", ["", "another"], ids=["connector given by a file", "foreign name"])
def test_loads_belong_to_the_cell_that_the_request_names(cell):
    row = {"request": "gain.HND-connector_a.0123456789ab", "cell": cell, "overlap": True}
    events = told(
        {**row, "pending_at_forward": 3, "blocking_waits": 0}, {**row, "pending_at_forward": 0, "blocking_waits": 0}
    )
    counts = {"loads": 2, "pending": 1, "waited": 0}
    assert events == [("gain.overlap", {"branch": "HND", "engine": "e", "cell": "HND-connector_a", **counts})]


def test_a_log_like_marus_tells_nothing():
    assert told({"id": 1, "request": "gain.HND-connector_a.0123456789ab", "overlap": "on", "load": "async"}) == []
    assert told({"id": 1, "request": "gain.HND-connector_a.0123456789ab"}) == []


def test_what_a_load_took_is_told_where_the_journal_says_so():
    row = {"request": "gain.HND-index.0123456789ab", "overlap": False, "read_s": 0.25, "place_s": 0.5}
    place = {"branch": "HND", "engine": "e", "cell": "HND-index", "concurrency": 1, "length": 513}
    assert told(row, row) == [("gain.timings", {**place, "loads": 2, "read_s": 0.5, "place_s": 1.0})]
    on_a_gpu = {**row, "place_s": None}
    assert told(row, on_a_gpu) == [("gain.timings", {**place, "loads": 2, "read_s": 0.5, "place_s": None})]


def test_the_proofs_requests_are_not_timed():
    assert timed_cell("HND.connector.1.HND-a.external.0.0123") is None
    assert timed_cell("gain.HND-chunkwise-overlap_on-index-load_async.0123456789ab") == (
        "HND-chunkwise-overlap_on-index-load_async"
    )
