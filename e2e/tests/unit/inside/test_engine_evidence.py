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
