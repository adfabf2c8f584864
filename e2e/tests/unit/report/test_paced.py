"""What was reached of a pool's pace stands beside what was asked for."""

from e2e.base.event import Event
from e2e.report.paced import paced


def engine(name: str, **effective: object) -> Event:
    return Event("engine.config", {"engine": name, "effective": effective}, 0)


def evidence(of: str, **counters: int) -> Event:
    return Event("connector.evidence", {"engine": of, "cell": "c", "arm": "cold", "counters": counters, "loads": []}, 0)


def test_reached_beside_asked_over_all_engines_of_one_pace():
    wrote = {"paced_writes": 2, "paced_write_bytes": 4000, "paced_write_ns": 1000, "paced_write_late_ns": 1200}
    events = [
        engine("a", pool_pace="20 GB/s, 300 ns"), engine("b", pool_pace="20 GB/s, 300 ns"), engine("plain"),
        evidence("a", **wrote), evidence("b", **wrote), evidence("plain", hit_tokens=3),
        evidence("a", paced_reads=4, paced_read_bytes=10_000, paced_read_ns=4000, paced_read_late_ns=2000),
    ]  # fmt: skip
    assert paced(events) == [
        "reads: asked for 20 GB/s, 300 ns; reached 2.5 GB/s, 500 ns (4 of 2.5 kB on average)",
        "writes: asked for 20 GB/s, 300 ns; reached 4 GB/s, 600 ns (4 of 2 kB on average)",
    ]


def test_where_nothing_was_paced_or_passed_nothing_is_said():
    assert paced([engine("a"), evidence("a", paced_reads=4, paced_read_bytes=1, paced_read_ns=1)]) == []
    assert paced([engine("a", pool_pace="1 GB/s"), evidence("a", hit_tokens=1)]) == []
