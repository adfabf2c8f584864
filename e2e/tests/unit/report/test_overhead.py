from e2e.base.event import Event
from e2e.report.overhead import digest_share, overhead, sentence


def _done(sent_s: float, done_s: float) -> Event:
    rest = dict.fromkeys(("request", "token_ids", "logprobs", "top", "finish_reason", "cached_tokens", "first_ns"))
    return Event("request.done", {**rest, "sent_ns": int(sent_s * 1e9), "done_ns": int(done_s * 1e9)})


def test_floor_is_starts_and_answers():
    events = [Event("engine.ready", {"engine": "a", "start_s": 20.0}), _done(30, 35), _done(36, 41)]
    figures = overhead(events, total_s=36.0)
    assert figures == {"total_s": 36.0, "starts_s": 20.0, "tokens_s": 10.0, "ratio": 1.2, "digest_share": None}
    assert "1.20 times" in sentence(figures)


def test_nothing_ran():
    assert overhead([], total_s=3.0)["ratio"] is None
    assert sentence(overhead([], total_s=3.0)) == "took 3.0 s"


def test_digests_over_the_cold_ttft():
    rest = dict.fromkeys(("token_ids", "logprobs", "top", "finish_reason", "cached_tokens", "done_ns"))
    sent = dict.fromkeys(("engine", "cell", "prompt", "params", "salt"))
    hit = {"engine": "a", "cell": None, "prompt": 0, "tokens": 9, "digest": "d"}
    events = [
        Event("expect.hit", {**hit, "arm": "cold", "local": 0, "external": 0}),
        Event("expect.hit", {**hit, "arm": "external", "local": 0, "external": 8}),
        Event("digest.cost", {"engine": "a", "cell": None, "arm": "cold", "cost_s": 0.05}),
        Event("digest.cost", {"engine": "a", "cell": None, "arm": "external", "cost_s": 9.0}),
        Event("request.sent", {**sent, "engine": "a", "request": "r", "arm": "cold"}),
        Event("request.done", {**rest, "request": "r", "sent_ns": 0, "first_ns": 2 * 10**9}),
    ]
    assert digest_share(events) == 0.025
    assert "2.5% of the cold TTFT" in sentence(
        {"total_s": 1, "starts_s": 1, "tokens_s": 1, "ratio": 1.0, "digest_share": 0.025}
    )
