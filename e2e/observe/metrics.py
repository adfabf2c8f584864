"""vLLM's /metrics over one arm, as differences of counters.

Which series there are depends on the vLLM version (0.14 to 0.33): ``prompt_tokens_by_source`` since 0.16, the others in
all. All of them are the scheduler's plan, not proof of what was loaded.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from prometheus_client.parser import text_string_to_metric_families

from e2e.base.errors import EngineAnswer
from e2e.base.event import Record
from e2e.waits import until

#: vLLM's sample -> key in metrics.delta, where the two differ by more than prefix and suffix
_COUNTERS = {
    "vllm:prompt_tokens_total": "prompt_tokens",
    "vllm:generation_tokens_total": "generation_tokens",
    "vllm:prefix_cache_queries_total": "local_queries",
    "vllm:prefix_cache_hits_total": "local_hits",
    "vllm:external_prefix_cache_queries_total": "external_queries",
    "vllm:external_prefix_cache_hits_total": "external_hits",
    "vllm:num_preemptions_total": "preemptions",
    "vllm:request_success_total": "finished",
}
_BY_SOURCE = "vllm:prompt_tokens_by_source_total"
_AT_WORK = ("vllm:num_requests_running", "vllm:num_requests_waiting")
_TTFT = "vllm:time_to_first_token_seconds"
#: All that is read of a page. A value there that is no number would let a verdict pass for want of it.
_READ = {*_COUNTERS, _BY_SOURCE, *_AT_WORK, _TTFT + "_sum", _TTFT + "_count"}
_POLL_S = 0.05
#: On an engine in use, which has other things to do.
_POLL_IN_USE_S = 0.25
_SETTLE_S = 2.0


@dataclass(frozen=True)
class Snapshot:
    """Cumulative values, summed over engines and models. ``counters``: keys as in the event metrics.delta; a series
    that the engine lacks is absent. ``ttft_sum`` in seconds. ``at_work``: requests running or waiting, now, of which
    so many are ``waiting``."""

    counters: dict[str, float]
    ttft_sum: float = 0.0
    ttft_count: int = 0
    at_work: int = 0
    waiting: int = 0

    @classmethod
    def parse(cls, text: str) -> Snapshot:
        """EngineAnswer when ``text`` is no Prometheus exposition, none of vLLM's, or has no number where one counts."""
        counters: dict[str, float] = {}
        ttft = {"_sum": 0.0, "_count": 0.0}
        at_work, waiting, seen = 0.0, 0.0, False
        try:
            for family in text_string_to_metric_families(text):
                for sample in family.samples:
                    if not math.isfinite(sample.value) and sample.name in _READ:
                        raise ValueError(f"{sample.name} is {sample.value}")
                    seen = seen or sample.name.startswith("vllm:")
                    key = sample.labels.get("source") if sample.name == _BY_SOURCE else _COUNTERS.get(sample.name)
                    if key:
                        counters[key] = counters.get(key, 0.0) + sample.value
                    elif sample.name in (_TTFT + "_sum", _TTFT + "_count"):
                        ttft[sample.name.removeprefix(_TTFT)] += sample.value
                    elif sample.name in _AT_WORK:
                        at_work += sample.value
                        waiting += sample.value * (sample.name == _AT_WORK[1])
        except ValueError as error:
            raise EngineAnswer(f"/metrics can't be read ({error}); is it a vLLM server?", status=200) from error
        if not seen:
            raise EngineAnswer("/metrics has no series of vLLM; is it a vLLM server?", status=200)
        return cls(
            counters, ttft_sum=ttft["_sum"], ttft_count=int(ttft["_count"]), at_work=int(at_work), waiting=int(waiting)
        )

    def since(self, before: Snapshot) -> dict[str, float]:
        """Differences per counter. A labelled series appears with its first increment, so an absent one was 0."""
        return {key: _whole(value - before.counters.get(key, 0.0)) for key, value in self.counters.items()}

    def went_back(self, before: Snapshot) -> bool:
        """Did any counter fall, or vanish: was the engine started anew in between?"""
        if self.ttft_count < before.ttft_count:
            return True
        return any(self.counters.get(key, 0.0) < value for key, value in before.counters.items())


def _whole(value: float) -> float | int:
    return int(value) if value.is_integer() else value


class MetricsWindow:
    """One engine's metrics, arm by arm::

        window = MetricsWindow(client.metrics, record, engine="HND.connector.1")
        with window.arm(cell=cell.id, arm="external", requests=3):
            run_arm(...)

    ``read`` gives the text of /metrics. vLLM may count a first token some moments after it sent it, so at the end of
    an arm the page is read until the TTFT histogram's count has risen by ``requests``, for at most ``limit_s`` seconds.
    An arm that raises records nothing. ``in_use``: others use the engine too, so it is also told whether they did, and
    waited for a moment in which they don't, as long.
    """

    def __init__(
        self, read: Callable[[], str], record: Record, *, engine: str, limit_s: float = 10.0, in_use: bool = False
    ) -> None:
        self._read = read
        self._record = record
        self._engine = engine
        self._limit_s = limit_s
        self._in_use = in_use
        self._last: Snapshot | None = None

    def at_work(self) -> int:
        """Requests running or waiting on an engine that should be at rest; the gauges may lag behind by a moment."""
        return self._poll(lambda now: not now.at_work, self._limit_s).at_work

    @contextmanager
    def arm(self, *, cell: str | None, arm: str, requests: int) -> Iterator[None]:
        before = self._settled()
        yield

        def counted(now: Snapshot) -> bool:
            all_there = now.ttft_count >= before.ttft_count + requests
            return now.went_back(before) or (all_there and not (self._in_use and now.at_work))

        after = self._poll(counted, self._limit_s)
        self._last = after
        self._record(
            "metrics.delta",
            engine=self._engine,
            cell=cell,
            arm=arm,
            requests=requests,
            counters=after.since(before),
            ttft={"sum_s": after.ttft_sum - before.ttft_sum, "count": after.ttft_count - before.ttft_count},
            complete=after.ttft_count >= before.ttft_count + requests,
            went_back=after.went_back(before),
            **({"at_work": max(before.at_work, after.at_work)} if self._in_use else {}),
        )

    def _settled(self) -> Snapshot:
        """A reading equal to the one before, so that nothing of an earlier request is counted late; on an engine that
        others use too, the last one after a while."""

        def still(now: Snapshot) -> bool:
            last, self._last = self._last, now
            return last == now

        return self._poll(still, _SETTLE_S)

    def _poll(self, done: Callable[[Snapshot], bool], limit_s: float) -> Snapshot:
        every_s = _POLL_IN_USE_S if self._in_use else _POLL_S
        return until(lambda: Snapshot.parse(self._read()), done, limit_s=limit_s, every_s=every_s)
