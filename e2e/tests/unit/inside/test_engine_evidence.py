import multiprocessing

from e2e.inside.evidence import Evidence


def test_counters_add_up(tmp_path):
    evidence = Evidence(str(tmp_path), "one")
    for placement in ("index", "kernel", "kernel"):
        evidence.count({"places": 30, "misses": 0}, storage_format="layerwise", placement=placement)
    assert evidence.counters() == {"places": 90, "places/layerwise/index": 30, "places/layerwise/kernel": 60}


def test_loads_are_journaled_in_order(tmp_path):
    evidence = Evidence(str(tmp_path), "one")
    evidence.journal_load({"request": "a"})
    evidence.journal_load({"request": "b"})
    assert [(row["id"], row["request"]) for row in evidence.loads()] == [(1, "a"), (2, "b")]
    assert [row["request"] for row in evidence.loads(after=1)] == ["b"]


def _other_process(folder: str) -> None:
    Evidence(folder, "one").count({"loads": 2})


def test_processes_of_an_engine_share_it_and_engines_do_not(tmp_path):
    evidence = Evidence(str(tmp_path), "one")
    process = multiprocessing.get_context("spawn").Process(target=_other_process, args=(str(tmp_path),))
    process.start()
    process.join(60)
    assert evidence.counters()["loads"] == 2
    assert Evidence(str(tmp_path), "other").counters() == {}


def _at_once(folder: str, start) -> None:
    for number in range(100):
        start.wait(60)
        Evidence(folder, f"engine{number}")


def test_ranks_that_start_at_the_same_moment_share_it(tmp_path):
    """Two of sixty such starts ended with 'database is locked'."""
    processes = multiprocessing.get_context("spawn")
    start = processes.Barrier(4)
    ranks = [processes.Process(target=_at_once, args=(str(tmp_path), start)) for _ in range(4)]
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join(90)
    assert [rank.exitcode for rank in ranks] == [0] * 4


def test_a_rank_sees_its_own_and_what_the_scheduler_counted(tmp_path):
    scheduler, first, second = (Evidence(str(tmp_path), "one", *rank) for rank in ((), (0,), (1,)))
    scheduler.count({"hit_tokens": 256})
    first.count({"loads": 1})
    second.count({"loads": 1, "load_failures": 1}, storage_format="chunkwise", placement="index")
    second.journal_load({"request": "b"})
    assert (first.counters()["hit_tokens"], first.counters()["loads"]) == (256, 1)
    assert "load_failures" not in first.counters()
    assert (second.counters()["load_failures"], second.counters()["loads"]) == (1, 1)
    assert (first.loads(), [load["request"] for load in second.loads()]) == ([], ["b"])
    assert scheduler.counters()["hit_tokens"] == 256
