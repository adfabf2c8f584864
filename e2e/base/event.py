"""Events: the only thing that rooms hand over to each other, and all that the judge ever sees.

An event is a kind, a monotonic time and a flat dict of JSON values. ``KINDS`` is the whole vocabulary: kind -> keys
that must be there. Times ending in ``_ns`` come from ``time.monotonic_ns()`` of the rig's process; those ending in
``_s`` are seconds. "engine" is the name of one engine start, unique in a recording (``HND.connector.2``); "arm" one of
``ARMS``; "cell" a cell's id, or None for arms of the baseline engine, which belong to every cell of the engine key.
"prompt" is the index of a prompt in the attempt's list for its engine key: equal index, engine key and attempt means
equal token ids.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

SCHEMA = "maru-e2e/recording/1"

#: In the order in which they run. The baseline engine runs the first two only.
ARMS = ("cold", "local", "external", "external_again")

KINDS: dict[str, frozenset[str]] = {
    kind: frozenset(keys.split())
    for kind, keys in {
        # run: one per attempt; attempt counts from 1, a resumed run appends to the same file with the next number.
        # versions/machine are dicts; settings is what the user asked for, as JSON values. Optional, for the command
        # that runs a cell again: program, the words that start the rig, and folder, where it was started.
        "run.begin": "run_id attempt schema command versions machine settings wall_time",
        "run.end": "attempt",
        # plan. expect: {"layout", "block_size", "attention_backend", "storage_format", "placement", "overlap", "load"},
        # only keys that can be checked. oracle: "aligned" | "split_matched". step: tokens per prefill step or None.
        # lengths: prompt lengths in tokens by prompt index. blind: [{"fault_class", "why"}].
        # counters: does the adapter have counters of its own that must agree. baseline: is there an engine without a
        # connector to compare with (not where we attach). deterministic: one request at a time or batch-invariant mode.
        # digests: are digests expected. fault: name of the planted fault or None.
        # Optional load_failure_policy: vLLM's kv_load_failure_policy of the connector's engine, "fail" | "recompute".
        "plan.cell": "cell attempt settings engine_key adapter expect oracle step lengths blind counters baseline "
        "deterministic digests fault",
        # a combination that the grid asked for and that can't run
        "plan.invalid": "settings why",
        # engines. role: "connector" | "baseline". stage: "start" | "run". error: class name of base.errors.
        "engine.start": "engine engine_key role attempt argv launcher log",
        "engine.ready": "engine start_s",
        # effective, read in the worker: {"layout", "shape", "stride", "dtype", "block_size", "attention_backend",
        # "num_blocks", "num_layers", "versions", ...}; an unread key is absent.
        "engine.config": "engine effective",
        "engine.failed": "engine stage error cause log_tail",
        "engine.stop": "engine graceful stop_s",
        # cells. A cell with cell.end in some attempt is finished; --resume does not run it again.
        "cell.begin": "cell engine attempt",
        "cell.end": "cell engine attempt",
        # the same for the two arms of the baseline engine
        "baseline.begin": "engine engine_key attempt",
        "baseline.end": "engine engine_key attempt",
        "arm.begin": "engine cell arm",
        "arm.end": "engine cell arm",
        # recorded before the request: tokens that must be served by vLLM's prefix cache (local) and by the connector
        # (external). digest: sha256 of the prompt's token ids.
        "expect.hit": "engine cell arm prompt tokens local external digest",
        # request: unique id. On disk before the POST; without request.done or request.failed it is indeterminate.
        "request.sent": "request engine cell arm prompt params salt",
        # logprobs: float per output token; top: per output token {"token_id:N": logprob}; cached_tokens may be None;
        # finish_reason as vLLM gives it. Optional, for the reader alone: text, per output token what became readable.
        "request.done": "request token_ids logprobs top finish_reason cached_tokens sent_ns first_ns done_ns",
        "request.failed": "request error message status",
        # before the arm it names: POST /reset_prefix_cache until success, and random values over all free blocks
        "reset.local": "engine cell arm ok tries",
        "overwrite.free": "engine cell arm ok blocks seed",
        # deltas over one arm, by vLLM's names without prefix and _total: {"local_compute", "local_cache_hit",
        # "external_kv_transfer", "prompt_tokens", "external_queries", "external_hits", "preemptions"}: absent when the
        # engine has no such series. ttft: {"sum_s", "count"}. complete: the count reached requests before the limit.
        "metrics.delta": "engine cell arm requests counters ttft complete went_back",
        # what the connector itself says of one arm. counters: name -> delta, among them "hit_tokens", "miss_chunks",
        # "loaded_bytes", "stored_bytes", "load_failures", "store_failures", of them "no_room". loads: one dict a loaded
        # request: {"request", "tokens", "storage_format", "placement", "load", "overlap", "places", "layers",
        #  "pending_at_forward", "blocking_waits", "failed"}. Optional errors: the first of its own error lines.
        "connector.evidence": "engine cell arm counters loads",
        # digests of one request's KV in logical coordinates. when: "computed" | "loaded" | "read".
        # values: file or inline, see inside/probe.py.
        "digest.taken": "engine cell arm request prompt when blocks tokens values",
        "digest.sample": "engine cell arm request prompt layer kv head block expected found",
        # seconds that hashing took in the worker during one arm
        "digest.cost": "engine cell arm cost_s",
        "fault.fired": "engine cell arm fault count",
        # gain: what is compared, and single measurements. mode: "axis" (one engine, chosen per request) | "specs" (two
        # connectors on alternating engines). names: {"a", "b"}: what each side is. pairs: [{"branch", "a", "b"}], cell
        # ids. double: was it the embedded connector.
        "gain.plan": "mode axis names pairs concurrency lengths repeats rounds double device attempt",
        # side: "a" | "b" | "a2", which is a once more, for the noise. number: equal for the sides of one pair.
        # ttft_s: client seconds per request; server: TTFT {"sum_s", "count"}; local, external: tokens by vLLM's count,
        # None where it has none; expected: external tokens predicted.
        "gain.sample": "branch side engine concurrency length round number order ttft_s server local external expected",
        # what timed requests of a cell met: loads; those with layers missing when the forward began (pending); those
        # for which it really had to wait (waited). Of connectors that keep a journal of their loads.
        "gain.overlap": "branch engine cell loads pending waited",
        # counted by the profiler over so many requests, none of them timed; counts: see inside/profile.py
        "gain.launches": "branch side engine length requests counts",
        # something worth reading that no rule judges
        "note": "text",
    }.items()
}


@dataclass(frozen=True)
class Event:
    """``t_ns``: monotonic nanoseconds of the rig. Raises ValueError for an unknown kind or a missing key."""

    kind: str
    data: Mapping[str, object] = field(default_factory=dict)
    t_ns: int = 0

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"unknown event kind {self.kind!r}")
        missing = KINDS[self.kind] - self.data.keys()
        if missing:
            raise ValueError(f"event {self.kind} lacks {', '.join(sorted(missing))}")

    def __getitem__(self, key: str) -> object:
        return self.data[key]


#: What rooms that see things take: ``record("engine.ready", engine="HND.connector.1", start_s=21.4)``.
#: The recording stamps the time and has the line on disk when it returns.
Record = Callable[..., Event]
