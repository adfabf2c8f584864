"""On real /metrics pages (vLLM 0.32, CPU, before and after a cold arm of three prompts), and on synthetic ones."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest

from e2e.base.errors import EngineAnswer
from e2e.base.event import Event
from e2e.observe.metrics import MetricsWindow, Snapshot

PAGES = Path(__file__).parents[2] / "recordings" / "metrics"
BEFORE = (PAGES / "vllm-0.32-cold-before.txt").read_text()
AFTER = (PAGES / "vllm-0.32-cold-after.txt").read_text()
SOURCES = ("local_compute", "local_cache_hit", "external_kv_transfer")


def test_a_real_cold_arm():
    before, after = Snapshot.parse(BEFORE), Snapshot.parse(AFTER)
    assert after.since(before) == {
        "prompt_tokens": 1025 + 1030 + 2050,
        "local_compute": 1025 + 1030 + 2050,
        "local_cache_hit": 0,
        "external_kv_transfer": 0,
        "local_queries": 4105,
        "local_hits": 0,
        "external_queries": 0,
        "external_hits": 0,
        "preemptions": 0,
        "generation_tokens": 24,
    }
    assert after.ttft_count - before.ttft_count == 3
    assert 0 < after.ttft_sum - before.ttft_sum < 60
    assert not after.went_back(before)
    assert before.went_back(after)


def test_a_series_that_an_old_engine_lacks_is_absent():
    old = "\n".join(line for line in AFTER.splitlines() if "by_source" not in line) + "\n"
    assert not set(SOURCES) & Snapshot.parse(old).counters.keys()


def test_a_series_that_appears_started_at_zero_and_one_that_vanishes_went_back():
    bare = Snapshot(counters={"prompt_tokens": 3.0})
    more = Snapshot(counters={"prompt_tokens": 5.0, "external_kv_transfer": 2.0})
    assert more.since(bare) == {"prompt_tokens": 2, "external_kv_transfer": 2}
    assert not more.went_back(bare)
    assert bare.went_back(Snapshot(counters={"external_kv_transfer": 2.0}))


def test_a_restart_shows_even_where_only_the_histogram_fell():
    assert Snapshot(counters={}, ttft_count=1).went_back(Snapshot(counters={}, ttft_count=2))


@pytest.mark.parametrize("page", ["", "<html>", "# TYPE up gauge\nup 1\n", "vllm:prompt_tokens_total{ 1\n"])
def test_what_is_no_page_of_vllm_is_refused(page):
    with pytest.raises(EngineAnswer, match="vLLM server"):
        Snapshot.parse(page)


TOKENS = st.integers(min_value=0, max_value=2**40)


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-Inf"])
@pytest.mark.parametrize(
    "series",
    [
        'vllm:num_requests_running{engine="0"}', "vllm:num_requests_waiting", "vllm:num_preemptions_total",
        'vllm:prompt_tokens_by_source_total{source="external_kv_transfer"}', "vllm:time_to_first_token_seconds_sum",
    ],
)  # fmt: skip
def test_what_is_no_number_where_one_counts_is_named(series, value):
    page = f"vllm:prompt_tokens_total 5\n{series} {value}\n"
    with pytest.raises(EngineAnswer, match=rf"/metrics can't be read \({series.partition('{')[0]} is [-a-z]+\)"):
        Snapshot.parse(page)


def test_what_is_no_number_elsewhere_does_not_matter():
    assert Snapshot.parse("vllm:prompt_tokens_total 5\nvllm:something_else NaN\n").counters == {"prompt_tokens": 5}


@given(
    st.lists(st.tuples(st.tuples(TOKENS, TOKENS, TOKENS), TOKENS, TOKENS), min_size=1, max_size=3),
    st.lists(st.floats(min_value=0.001, max_value=50), max_size=20),
    st.text(max_size=10),
)
@settings(max_examples=50, deadline=None)
def test_what_is_exposed_is_what_is_read_summed_over_engines(engines, ttfts, model):
    registry = CollectorRegistry()
    labels = ["engine", "model_name"]
    by_source = Counter("vllm:prompt_tokens_by_source", "d", [*labels, "source"], registry=registry)
    prompt = Counter("vllm:prompt_tokens", "d", labels, registry=registry)
    hits = Counter("vllm:external_prefix_cache_hits", "d", labels, registry=registry)
    ttft = Histogram("vllm:time_to_first_token_seconds", "d", labels, registry=registry)
    Counter("vllm:prompt_tokens_cached_by_source", "d", [*labels, "source"], registry=registry).labels(
        "0", model, "local_compute"
    ).inc(7)
    for number, (sources, tokens, external) in enumerate(engines):
        for source, value in zip(SOURCES, sources, strict=True):
            by_source.labels(str(number), model, source).inc(value)
        prompt.labels(str(number), model).inc(tokens)
        hits.labels(str(number), model).inc(external)
    for seconds in ttfts:
        ttft.labels("0", model).observe(seconds)
    read = Snapshot.parse(generate_latest(registry).decode())
    assert read.counters == {
        **{source: sum(engine[0][place] for engine in engines) for place, source in enumerate(SOURCES)},
        "prompt_tokens": sum(engine[1] for engine in engines),
        "external_hits": sum(engine[2] for engine in engines),
    }
    assert read.ttft_count == len(ttfts)
    assert read.ttft_sum == pytest.approx(sum(ttfts))


def page(tokens, firsts):
    return (
        f"# TYPE vllm:prompt_tokens_total counter\nvllm:prompt_tokens_total {tokens}\n"
        f"# TYPE vllm:time_to_first_token_seconds histogram\n"
        f"vllm:time_to_first_token_seconds_sum {firsts / 4}\nvllm:time_to_first_token_seconds_count {firsts}\n"
    )


def delta(pages, *, requests=2, limit_s=0.5):
    """One arm over the given pages, the last one for ever; the event and how many were read."""
    events, read = [], 0

    def next_page():
        nonlocal read
        read += 1
        return pages[min(read, len(pages)) - 1]

    window = MetricsWindow(
        next_page, lambda kind, **data: events.append(Event(kind, data)), engine="e", limit_s=limit_s
    )
    with window.arm(cell="c", arm="cold", requests=requests):
        assert not events
    (event,) = events
    return event, read


def test_the_window_waits_for_the_last_first_token():
    event, read = delta([page(0, 0), page(0, 0), page(50, 1), page(100, 2)])
    assert read == 4
    assert (event["counters"], event["ttft"]) == ({"prompt_tokens": 100}, {"sum_s": 0.5, "count": 2})
    assert (event["complete"], event["went_back"], event["requests"]) == (True, False, 2)
    assert (event["engine"], event["cell"], event["arm"]) == ("e", "c", "cold")


def test_the_window_lets_an_earlier_request_settle_first():
    event, _ = delta([page(0, 0), page(9, 1), page(9, 1), page(109, 3)])
    assert event["counters"] == {"prompt_tokens": 100}


def test_the_wait_has_a_limit():
    event, _ = delta([page(0, 0), page(0, 0), page(50, 1)], limit_s=0.2)
    assert (event["complete"], event["ttft"]["count"]) == (False, 1)


def test_a_restart_ends_the_wait_at_once():
    event, read = delta([page(90, 9), page(90, 9), page(10, 1)], limit_s=30)
    assert (read, event["went_back"], event["complete"]) == (3, True, False)


def test_an_arm_that_raises_records_nothing_and_the_next_ones_are_exact():
    events, pages = [], [page(0, 0), page(0, 0), page(50, 1), page(50, 1), page(150, 3), page(150, 3), page(160, 4)]
    window = MetricsWindow(
        lambda: pages.pop(0), lambda kind, **data: events.append(Event(kind, data)), engine="e", limit_s=1
    )

    def failing():
        with window.arm(cell=None, arm="cold", requests=2):
            raise EngineAnswer("no.", status=500)

    with pytest.raises(EngineAnswer, match="no"):
        failing()
    assert not events
    with window.arm(cell=None, arm="cold", requests=2):
        pass
    with window.arm(cell=None, arm="local", requests=1):
        pass
    assert [event["counters"]["prompt_tokens"] for event in events] == [100, 10]
    assert not pages
