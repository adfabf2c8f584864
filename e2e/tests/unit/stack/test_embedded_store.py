"""A store of the embedded connector without an engine: its index runs, its objects are listed and damaged by name."""

from __future__ import annotations

import os

import psutil
import pytest

from e2e.base.cell import Cell
from e2e.base.errors import EngineError, SettingsError
from e2e.base.program import Break
from e2e.connectors.embedded import INDEX, Embedded
from e2e.inside.evidence import Evidence
from e2e.inside.index.client import Client
from e2e.inside.memory import Mapped
from e2e.inside.pool import Pool
from e2e.inside.region import region
from e2e.play.nemesis import broken
from e2e.stack.store import Store
from e2e.tests.unit.inside.pools import filled
from e2e.waits import Outcome, wait

SIZE = 1 << 20


@pytest.fixture
def store(ledger, recorded, tmp_path):
    (tmp_path / "pools").mkdir()
    with Store(
        "shared", parent=tmp_path / "pools", ledger=ledger, environ=dict(os.environ), log_dir=tmp_path / "logs",
        record=recorded,
    ) as store:  # fmt: skip
        yield store


@pytest.fixture
def pool(store):
    """As an engine on that store would open it."""
    given = store.give(Embedded(pool_bytes=SIZE).config(Cell({}), pool_dir=str(store.folder), block_size=16))
    index = Client(given.extra["embedded_index"], rest_s=0.0)
    return Pool(
        Mapped(region(f"{store.folder}/region", SIZE)),
        SIZE,
        index=index,
        evidence=Evidence(str(store.folder), "engine"),
    )


def put(pool, group, value):
    assert pool.put(group, "t", [(f"{group}_L{i}", filled(value + i, 256)) for i in range(3)]) == ""


def readable(pool, group) -> list[bool]:
    (extents,) = pool.locate([group])
    return [pool.read(extents.get(f"{group}_L{i}"), filled(0, 256)) for i in range(3)]


def test_objects_are_listed(store, pool):
    assert store.objects() == []
    put(pool, "a", 1)
    put(pool, "b", 2)
    pool.find(["a"])
    assert store.objects() == ["b", "a"]


@pytest.mark.parametrize(
    ("how", "left"),
    [
        ("delete", [False, False, False]),
        ("lose", [False, False, False]),
        ("flip", [True, False, True]),
        ("tear", [False, False, False]),
        ("truncate", [False, False, False]),
        ("replace", [False, False, False]),
    ],
)
def test_what_is_damaged_can_not_be_read(store, pool, how, left):
    for value, group in enumerate("abc"):
        put(pool, group, 10 * value)
    store.damage(how, "b")
    assert readable(pool, "b") == left
    assert pool.find(["b"]) == [None if how == "delete" else "t"], "who looks it up can't know"
    assert readable(pool, "a") == readable(pool, "c") == [True, True, True]


def test_a_story_strikes_all_that_its_store_holds(store, pool):
    for value, group in enumerate("abc", start=1):
        put(pool, group, 10 * value)
    with broken(Break("object", "tear", "shared"), {}, {"shared": store}):
        assert [any(readable(pool, group)) for group in "abc"] == [False] * 3
    with pytest.raises(SettingsError, match="no store other that could be damaged"):
        broken(Break("object", "tear", "other"), {}, {"shared": store}).__enter__()


def test_what_can_not_be_damaged_is_said(store, pool):
    with pytest.raises(EngineError, match=r"no group 'nowhere' is there"):
        store.damage("flip", "nowhere")
    with pytest.raises(EngineError, match=r"invalid choice: 'burn'"):
        store.damage("burn", "a")
    put(pool, "a", 1)
    with pytest.raises(EngineError, match=r"no other group has the shape of 'a'"):
        store.damage("replace", "a")
    store.kill(INDEX)
    with pytest.raises(EngineError, match=r"does not answer"):
        store.objects()


def test_a_store_without_such_a_tool_says_so(store):
    with pytest.raises(EngineError, match="nobody can list or damage what the store shared holds"):
        store.objects()


def test_a_killed_index_is_restarted_empty_on_its_port(store, pool):
    put(pool, "a", 1)
    at = store.addresses
    store.kill(INDEX)
    assert pool.find(["a"]) == [None]
    store.restart(INDEX)
    assert store.addresses == at
    assert pool.find(["a"]) == [None]
    put(pool, "a", 1)
    assert readable(pool, "a") == [True, True, True]


def test_a_full_pool_refuses_what_comes_and_keeps_what_it_has(store, pool):
    put(pool, "a", 1)
    on_disk = (store.folder / "region").stat().st_blocks
    with broken(Break("space", "fill", "shared"), {}, {"shared": store}):
        assert pool.put("b", "t", [("b", filled(0, 256))]) == "no_room"
        assert readable(pool, "a") == [True, True, True]
        assert store.objects() == ["a"], "what takes the room is nothing that could be damaged"
        assert (store.folder / "region").stat().st_blocks == on_disk
    put(pool, "b", 2)
    assert readable(pool, "b") == [True, True, True]


def test_a_slow_index_answers_late_and_is_missed_by_nobody(store, pool):
    put(pool, "a", 1)
    index = psutil.Process(store.services[0].child.handle.pid)
    with broken(Break("server", "slow", INDEX), {}, {"shared": store}):
        for _ in range(3):
            stands_still = wait(lambda: index.status() == psutil.STATUS_STOPPED, limit_s=20, every_s=0.005)
            assert stands_still is Outcome.READY, "again and again"
            assert pool.find(["a"]) == ["t"]
        store.check()
    assert pool.evidence.counters().get("index_errors", 0) == 0
    assert pool.find(["a"]) == ["t"]


def test_a_restarted_index_is_noticed_by_whoever_was_connected(store, pool):
    put(pool, "a", 1)
    with broken(Break("server", "restart", INDEX), {}, {"shared": store}):
        assert pool.find(["a"]) == [None]
        assert pool.evidence.counters()["index_errors"] == 1
        put(pool, "a", 1)
    assert readable(pool, "a") == [True, True, True]


def test_what_an_engine_has_begun_and_not_ended_is_told_of_one_that_is_gone_too(store, pool):
    evidence = Evidence(str(store.folder), "killed", 0)
    evidence.count({"loads_begun": 3, "loads": 1, "load_failures": 1, "stores_begun": 2, "stored_chunks": 2})
    Evidence(str(store.folder), "other", 0).count({"stores_begun": 1})
    assert store.under_way("killed", "load") == {"load": 1, "store": 0}
    store.kill(INDEX)
    assert store.under_way("other") == {"load": 0, "store": 1}
    assert store.under_way("nobody") == {}
