"""The pool over a real region: what is written comes back, or nothing does."""

import struct

import pytest

from e2e.inside.index import protocol as p
from e2e.inside.index.client import IndexGone
from e2e.inside.pool import Group, Pool
from e2e.inside.region import PoolError
from e2e.tests.unit.inside.pools import filled, index_of, pool_in

SIZE = 1 << 16


@pytest.fixture
def pool(tmp_path) -> Pool:
    return pool_in(tmp_path, SIZE)


def _store(pool: Pool, name: str, value: int, size: int = 1000, tag: str = "t") -> str:
    return pool.put(name, tag, [(name, filled(value, size))])


def _read(pool: Pool, name: str, size: int = 1000) -> int | None:
    """The value that fills it, or None."""
    out = filled(0, size)
    (extents,) = pool.locate([name])
    if not pool.read(extents.get(name), out):
        return None
    assert out == filled(out[0], size)
    return out[0]


def test_an_object_exists_when_it_is_published(pool):
    assert pool.find(["a"]) == [None]
    assert _read(pool, "a") is None
    assert _store(pool, "a", 7) == ""
    assert pool.find(["a", "b", "a"]) == ["t", None, "t"]
    assert _read(pool, "a") == 7
    assert _read(pool, "a", 999) is None, "another size is another object"


def test_a_group_is_there_whole_or_not_at_all(pool):
    layers = [(f"a_L{i}", memoryview(bytearray(struct.pack("30f", *[float(i)] * 30)))) for i in range(4)]
    pool.put("a", "t", layers)
    (extents,) = pool.locate(["a"])
    out = filled(0, 120)
    for name, content in layers:
        assert pool.read(extents[name], out)
        assert out == content
    pool.forget(["a"])
    assert pool.locate(["a"]) == [{}]


@pytest.mark.parametrize("evict", [False, True])
def test_groups_go_together_and_each_for_itself(tmp_path, evict):
    asked, index = [], index_of(4096)
    pool = pool_in(tmp_path, 4096, index=lambda request: asked.append(request) or index(request), evict=evict)
    assert _store(pool, "old", 9, 500) == ""
    asked.clear()
    evicted = []
    groups = [Group(name, "t", [(name, filled(ord(name), 1500))]) for name in "abcd"]
    assert pool.putting(groups, evicted=evicted).end() == ["", "", "no_room", "no_room"]
    assert [type(request) for request in asked] == [p.All, p.All], "the index is asked twice, for rooms and to publish"
    assert (evicted, pool.find(["old"])) == ((["old"], [None]) if evict else ([], ["t"]))
    assert [_read(pool, name, 1500) for name in "abcd"] == [ord("a"), ord("b"), None, None]


def test_of_groups_that_go_together_none_is_there_whose_index_went(tmp_path):
    index = index_of(SIZE)

    def forgets(request):
        if isinstance(request, p.All) and isinstance(request.requests[0], p.Publish):
            index(p.Clear())
        return index(request)

    pool = pool_in(tmp_path, SIZE, index=forgets)
    assert pool.putting([Group(name, "t", [(name, filled(1, 100))]) for name in "ab"]).end() == ["lost", "lost"]
    assert pool.find(["a", "b"]) == [None, None]


def test_a_flipped_bit_is_seen(pool):
    _store(pool, "a", 7)
    pool.memory.bytes[500] ^= 1
    assert _read(pool, "a") is None


def test_bytes_of_another_writer_never_pass(tmp_path):
    """Somebody whose reservation is long void writes into the room, before or after it is published."""
    index = index_of(SIZE)

    def overwrites(request):
        if isinstance(request, p.Publish):
            pool.memory.bytes[100] ^= 1  # between our write and our word that it is written
        return index(request)

    pool = pool_in(tmp_path, SIZE, index=overwrites)
    assert _store(pool, "a", 7) == ""
    assert _read(pool, "a") is None


def test_full_is_said_and_clear_gives_all_back(pool):
    assert _store(pool, "big", 1, SIZE + 1) == "no_room"
    assert _store(pool, "a", 1, SIZE) == ""
    assert _store(pool, "b", 1, 1) == "no_room"
    assert pool.clear() is True
    assert pool.find(["a"]) == [None]
    assert _store(pool, "b", 2, SIZE) == ""


def test_a_full_pool_that_may_evicts_what_was_not_used_longest(tmp_path):
    pool = pool_in(tmp_path, 4096, evict=True)
    for name in "abcd":
        assert _store(pool, name, ord(name), 1000) == ""
    pool.find(["a"])
    assert _store(pool, "e", 5, 1000) == ""
    assert pool.find(list("abcde")) == ["t", None, "t", "t", "t"]
    pool.find(["c"], pin="request")
    assert _store(pool, "f", 6, 2000) == ""
    assert pool.find(["c", "f"]) == ["t", "t"]
    assert _store(pool, "g", 7, 4096) == "no_room", "c is being read"
    pool.unpin("request")
    assert _store(pool, "g", 7, 4096) == ""
    assert _read(pool, "g", 4096) == 7


def test_an_index_that_is_gone_is_a_miss_and_counted(tmp_path):
    index, gone = index_of(SIZE), []

    def breaks(request):
        if gone:
            raise IndexGone("nobody is there")
        return index(request)

    pool = pool_in(tmp_path, SIZE, index=breaks)
    _store(pool, "a", 7)
    (extents,) = pool.locate(["a"])
    gone.append(True)
    assert pool.find(["a", "b"], pin="r") == [None, None]
    assert pool.locate(["a", "b"]) == [{}, {}]
    assert _store(pool, "b", 1) == "lost"
    assert pool.putting([Group(name, "t", [(name, filled(1, 100))]) for name in "bc"]).end() == ["lost", "lost"]
    assert pool.clear() is False
    pool.unpin("r")
    pool.forget(["a"])
    assert pool.evidence.counters()["index_errors"] == 7
    out = filled(0, 1000)
    assert pool.read(extents["a"], out), "what was located can still be proven"


def test_no_room_is_one_sentence(tmp_path):
    with pytest.raises(PoolError, match=r"No room for a pool of .* set a smaller maru_pool_size\.$"):
        pool_in(tmp_path, 1 << 50)
    (tmp_path / "region").unlink()
    (tmp_path / "region").mkdir()
    with pytest.raises(PoolError, match=r"can't be opened .*; name another place\.$"):
        pool_in(tmp_path, SIZE)


def test_the_index_of_another_pool_is_refused(tmp_path):
    with pytest.raises(PoolError, match=r"pool of 65536 bytes, and maru_pool_size is 4096; give both the same\.$"):
        pool_in(tmp_path, 4096, index=index_of(SIZE))

    def gone(request):
        raise IndexGone("the index at 127.0.0.1:9 does not answer (refused)")

    with pytest.raises(PoolError, match=r"127\.0\.0\.1:9 does not answer .*; start it, or leave out embedded_index\.$"):
        pool_in(tmp_path, 4096, index=gone)
