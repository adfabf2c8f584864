import multiprocessing

import pytest
import torch

from e2e.inside.pool import Pool, PoolError

SIZE = 1 << 16


@pytest.fixture
def pool(tmp_path) -> Pool:
    return Pool(str(tmp_path), str(tmp_path / "region"), SIZE)


def _store(pool: Pool, name: str, value: int, size: int = 1000) -> None:
    room = pool.reserve(size)
    pool.view(room).fill_(value)
    pool.commit([(name, room)])


def test_an_object_exists_when_it_is_committed(pool):
    room = pool.reserve(100)
    out = torch.empty(100, dtype=torch.uint8)
    assert pool.has(["a"]) == 0
    assert not pool.read("a", out)
    pool.view(room).fill_(7)
    pool.commit([("a", room)])
    assert pool.has(["a", "b", "a"]) == 1, "counts up to the first gap"
    assert pool.read("a", out)
    assert bool((out == 7).all())
    assert not pool.read("a", torch.empty(99, dtype=torch.uint8)), "another size is another object"


def test_a_flipped_bit_is_seen(pool):
    _store(pool, "a", 7)
    pool._bytes[500] ^= 1
    assert not pool.read("a", torch.empty(1000, dtype=torch.uint8))


def test_full_is_none_and_clear_gives_all_back(pool):
    assert pool.reserve(SIZE + 1) is None
    _store(pool, "a", 1, SIZE)
    assert pool.reserve(1) is None
    late = pool  # room taken before a clear must not come to life after it
    pool.clear()
    room = late.reserve(SIZE)
    pool.clear()
    pool.commit([("ghost", room)])
    assert pool.has(["ghost"]) == 0
    assert pool.has(["a"]) == 0
    _store(pool, "b", 2, SIZE)


def _other_process(folder: str, found) -> None:
    pool = Pool(folder, f"{folder}/region", SIZE)
    out = torch.empty(1000, dtype=torch.uint8)
    found.put((pool.read("a", out), int(out[0]), pool.counters()["loads"]))


def test_processes_share_it(pool, tmp_path):
    _store(pool, "a", 9)
    pool.count({"loads": 2, "misses": 0}, storage_format="chunkwise", placement="index")
    context = multiprocessing.get_context("spawn")
    found = context.Queue()
    process = context.Process(target=_other_process, args=(str(tmp_path), found))
    process.start()
    assert found.get(timeout=60) == (True, 9, 2)
    process.join(30)


def test_counters_add_up(pool):
    for placement in ("index", "kernel", "kernel"):
        pool.count({"places": 30}, storage_format="layerwise", placement=placement)
    assert pool.counters() == {"places": 90, "places/layerwise/index": 30, "places/layerwise/kernel": 60}


def test_loads_are_journaled_in_order(pool):
    pool.journal_load({"request": "a"})
    pool.journal_load({"request": "b"})
    assert [(row["id"], row["request"]) for row in pool.loads()] == [(1, "a"), (2, "b")]
    assert [row["request"] for row in pool.loads(after=1)] == ["b"]


def test_no_room_is_one_sentence(tmp_path):
    with pytest.raises(PoolError, match=r"No room for a pool of .* set a smaller maru_pool_size\.$"):
        Pool(str(tmp_path), str(tmp_path / "region"), 1 << 50)
    with pytest.raises(PoolError, match="can't be opened"):
        Pool(str(tmp_path), str(tmp_path / "no" / "folder" / "region"), SIZE)
