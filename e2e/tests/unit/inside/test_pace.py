"""A memory at the pace of a link: never faster, whatever the machine does, and every transfer counted."""

import threading
import time

import pytest

from e2e.base.pace import Pace, latency, pace_of, rate
from e2e.inside.config import parse
from e2e.inside.memory import Host
from e2e.inside.pace import Paced
from e2e.tests.unit.inside.pools import filled

BASE = {"embedded_pool_dir": "/nowhere"}


class Bytes(Host):
    """A memory of a few bytes, and what was asked of it."""

    def __init__(self, size: int = 1 << 16) -> None:
        self.bytes, self.asked = filled(0, size), []

    def write(self, starts: list[int], buffers: list[memoryview]) -> None:
        for start, buffer in zip(starts, buffers, strict=True):
            self.bytes[start : start + buffer.nbytes] = buffer

    def read(self, starts: list[int], buffers: list[memoryview]) -> None:
        for start, buffer in zip(starts, buffers, strict=True):
            buffer[:] = self.bytes[start : start + buffer.nbytes]

    def write_back(self, start: int, size: int) -> None:
        self.asked.append(("write_back", start, size))

    def fetch(self, start: int, size: int) -> None:
        self.asked.append(("fetch", start, size))


@pytest.mark.parametrize(
    ("text", "pace", "said"),
    [
        ("20GB/s,300ns", Pace(20e9, 300), "20 GB/s, 300 ns"),
        ("1.5 us , 8 GiB/s", Pace(8 * 1024**3, 1500), "8.59 GB/s, 1.5 us"),
        ("500mb/s", Pace(500e6), "500 MB/s"),
        ("2ms", Pace(None, 2e6), "2 ms"),
    ],
)
def test_a_pace_in_words(text, pace, said):
    assert pace_of(text) == pace
    assert str(pace) == said
    assert parse({**BASE, "embedded_pool_pace": text}, block_size=16).link == pace


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ("fast", "no pace; write a bandwidth and a latency"), ("", "no pace"), ("20GB/s,", "no pace"),
        ("20GB", "no pace"), ("20", "no pace"), ("-1GB/s", "no pace"), ("2s", "no pace; .* up to a second"),
        ("1GB/s,2GB/s", "twice"), ("0GB/s", "a figure of 0"), ("1GB/s,0ns", "a figure of 0"), (20, "write a bandwidth"),
        (True, "write a bandwidth"),
    ],
)  # fmt: skip
def test_what_is_no_pace(given, why):
    with pytest.raises(ValueError, match=f"embedded_pool_pace.*{why}"):
        parse({**BASE, "embedded_pool_pace": given}, block_size=16)


def test_nothing_is_faster_than_the_link():
    paced, data = Paced(Bytes(), Pace(1e6, 2e6)), memoryview(bytearray(i % 251 for i in range(5000)))
    began = time.perf_counter_ns()
    paced.write([100], [data])
    wrote = time.perf_counter_ns()
    out = filled(0, 5000)
    paced.read([100], [out])
    read = time.perf_counter_ns()
    assert out == data
    assert min(wrote - began, read - wrote) >= 7e6, "5 ms for 5000 bytes at 1 MB/s, and 2 ms before them"
    of = paced.counters()
    assert (of["paced_reads"], of["paced_read_bytes"], of["paced_writes"], of["paced_write_bytes"]) == (
        1,
        5000,
        1,
        5000,
    )
    assert 7e6 <= of["paced_read_ns"] <= read - wrote
    assert 2e6 <= of["paced_read_late_ns"] <= read - wrote - 5e6


def test_threads_share_a_direction_and_their_latencies_overlap():
    paced = Paced(Bytes(), Pace(1e6, 5e6))
    threads = [threading.Thread(target=paced.write, args=([0], [filled(0, 2000)])) for _ in range(4)]
    began = time.perf_counter_ns()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    took = time.perf_counter_ns() - began
    of = paced.counters()
    assert of["paced_writes"] == 4
    assert 13e6 <= of["paced_write_ns"] <= took, "four turns of 2 ms, and the last one's latency"
    assert of["paced_write_late_ns"] >= 4 * 5e6
    assert of["paced_reads"] == 0


def test_what_moves_cache_lines_is_the_memory_s_own():
    memory = Bytes()
    paced = Paced(memory, Pace(1.0))  # a byte a second, so none may pass here
    paced.write_back(3, 4)
    paced.fetch(5, 6)
    assert memory.asked == [("write_back", 3, 4), ("fetch", 5, 6)]


def test_a_transfer_that_fails_is_counted_and_raised():
    paced = Paced(Bytes(10), Pace(None, 1))
    with pytest.raises(ValueError, match="structures"):
        paced.write([8], [filled(0, 5)])
    assert paced.counters()["paced_writes"] == 1


@pytest.mark.parametrize(("value", "said"), [(19.96e9, "20 GB/s"), (123456, "123 kB/s"), (0.5, "0.5 B/s")])
def test_a_rate_in_words(value, said):
    assert rate(value) == said


@pytest.mark.parametrize(("ns", "said"), [(0.2, "0.2 ns"), (312, "312 ns"), (61234, "61.2 us"), (2e9, "2 s")])
def test_a_latency_in_words(ns, said):
    assert latency(ns) == said
