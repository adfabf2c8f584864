"""Events of one Send, an "arm" in a recording: what it must be served, what it was answered, what was seen."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from e2e.base.kinds import Table, kind


@kind("arm.begin", "arm.end")
class OfArm:
    """``arm``: name of a Send of the program."""

    engine: str
    cell: str | None
    arm: str


@kind("expect.hit")
class ExpectHit(OfArm):
    """Recorded before the request: tokens that must be served by vLLM's prefix cache (``local``) and by the connector
    (``external``), or that many at most and ``least_local``, ``least_external`` at least. ``digest``: sha256 of the
    prompt's token ids."""

    prompt: int
    tokens: int
    local: int
    external: int
    digest: str
    least_local: int | None = None
    least_external: int | None = None


@kind("request.sent")
class RequestSent(OfArm):
    """On disk before the POST; without request.done or request.failed it is indeterminate. ``request``: unique id.
    ``model``: who is asked, where that is an adapter."""

    request: str
    prompt: int
    params: Table | None
    salt: str | None
    model: str | None = None


@kind("request.done")
class RequestDone:
    """``logprobs``: one per output token; ``top``: {"token_id:N": logprob} per output token; ``finish_reason`` as vLLM
    gives it. For the reader alone: ``text``, per output token what became readable."""

    request: str
    token_ids: list[int]
    logprobs: list[float] | None
    top: list[dict[str, float] | None] | None
    finish_reason: str | None
    cached_tokens: int | None
    sent_ns: int
    first_ns: int
    done_ns: int
    text: list[str] = field(default_factory=list)


@kind("request.failed")
class RequestFailed:
    request: str
    error: str
    message: str
    status: int | None


# before the arm it names: POST /reset_prefix_cache until success, and random values over all free blocks


@kind("reset.local")
class ResetLocal(OfArm):
    """``ok`` is None where vLLM does not tell."""

    ok: bool | None
    tries: int


@kind("overwrite.free")
class OverwriteFree(OfArm):
    ok: bool
    blocks: int
    seed: int


# what is counted over one arm


@dataclass(frozen=True)
class Histogram:
    sum_s: float
    count: int


@kind("metrics.delta")
class MetricsDelta(OfArm):
    """Deltas by vLLM's names without prefix and _total: local_compute, local_cache_hit, external_kv_transfer,
    prompt_tokens, external_queries, external_hits, preemptions, finished; absent when the engine has no such series.
    ``complete``: the count reached ``requests`` before the limit. ``at_work``: requests that ran or waited when it was
    read first or last; None where nobody else uses the engine."""

    requests: int
    counters: dict[str, float]
    ttft: Histogram
    complete: bool
    went_back: bool
    at_work: int | None = None


@kind("connector.evidence")
class ConnectorEvidence(OfArm):
    """What the connector itself says. ``counters``: name -> delta, among them hit_tokens, miss_chunks, loaded_bytes,
    stored_bytes, load_failures, store_failures, of them no_room. ``loads``: one per loaded request, with request,
    tokens, storage_format, placement, load, overlap, places, layers, pending_at_forward, blocking_waits, failed.
    ``errors``: the first of its own error lines. One event for each rank that told its own; ``rank`` is None where it
    was told for the whole engine."""

    counters: Table
    loads: list[Table]
    errors: list[str] = field(default_factory=list)
    rank: int | None = None


@kind("digest.taken")
class DigestTaken(OfArm):
    """Digests of one request's KV in logical coordinates. ``values``: see inside/probe; None where an earlier event
    has the same ``content``. ``prompt`` is None for a request that is not ours. ``nth``: which read of the request, of
    ``reads`` in the end: one that is preempted and resumed, or whose load failed, reads again. ``failed``: the
    connector itself reported that this load failed. ``tail``: of the tokens behind the whole blocks,
    of what was computed without the prompt's last one, which nobody serves. ``step``: the engine's, counted from when
    the probe was turned on: equal for what one step read. ``batch``: requests of which that step computed some."""

    request: str
    prompt: int | None
    when: Literal["computed", "loaded", "read"]
    blocks: int
    tokens: int
    values: str | None
    content: str | None = None
    rank: int = 0
    nth: int = 1
    reads: int = 1
    failed: bool = False
    tail: str | None = None
    step: int | None = None
    batch: int | None = None


@kind("digest.sample")
class DigestSample(OfArm):
    request: str
    prompt: int | None
    layer: int
    kv: int
    head: int
    block: int
    expected: str
    found: str
    rank: int = 0
    nth: int = 1


@kind("digest.cost")
class DigestCost(OfArm):
    """Seconds that hashing took during one arm in the worker that it took longest."""

    cost_s: float


@kind("fault.fired")
class FaultFired(OfArm):
    """``rank`` is None where the engine has one, or none is known."""

    fault: str
    count: int
    rank: int | None = None


@kind("step.seen")
class StepSeen(OfArm):
    """What the player counted during one Send, such as clients that went away ("gone") or, as it
    begins, other engines of its store that run ("engines_beside") and that ran ("engines_ended")."""

    what: str
    count: int
