"""The vocabulary of events: one class a kind, whose fields are the keys of its dict; those with a default may be left
out. Those of comparisons stand in ``kinds_gain.py``; what the words mean in ``event.py``. ``recording/`` checks every
line against them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

#: In the order in which they run. The baseline engine runs the first two only.
ARMS = ("cold", "local", "external", "external_again")

Plain = str | int | float | bool | None
#: A JSON value, nested no deeper than anything that is recorded.
JSON = Plain
for _ in range(12):
    JSON = Plain | list[JSON] | dict[str, JSON]  # type: ignore[misc, valid-type]
Table = dict[str, JSON]  # type: ignore[valid-type]

KINDS: dict[str, type] = {}


def kind(name: str) -> Callable[[type], type]:
    def register(shape: type) -> type:
        KINDS[name] = dataclass(frozen=True, kw_only=True)(shape)
        return KINDS[name]

    return register


# run: one per attempt; attempt counts from 1, a resumed run appends to the same file with the next number.


@dataclass(frozen=True)
class Asked:
    """Of what the user asked for, that which a judgement needs."""

    strict: bool = False


@kind("run.begin")
class RunBegin:
    """``settings``: what the user asked for, more than is named here. For the command that runs a cell again:
    ``program``, the words that start the rig, and ``folder``, where it was started."""

    run_id: str
    attempt: int
    schema: str
    command: list[str] | str
    versions: dict[str, Plain]
    machine: dict[str, Plain]
    settings: Asked
    wall_time: str
    program: list[str] | None = None
    folder: str | None = None


@kind("run.end")
class RunEnd:
    attempt: int


# plan


@kind("plan.cell")
class PlanCell:
    """``expect``: layout, block_size, attention_backend, storage_format, placement, overlap, load; only what can be
    checked. ``step``: tokens per prefill step or None. ``lengths``: prompt lengths in tokens by prompt index.
    ``blind``: [{"fault_class", "why"}]. ``counters``: does the adapter have counters of its own that must agree.
    ``baseline``: is there an engine without a connector to compare with (not where we attach). ``digests``: are they
    expected. ``fault``: name of the planted one. ``load_failure_policy``: vLLM's kv_load_failure_policy of the
    connector's engine, "fail" or "recompute". ``lossy``: the adapter says that the connector stores with loss.
    ``program``: what the cell does and must show, see ``program.py``, and its ``program_digest``; recordings from
    before there were programs have none, but say with ``deterministic`` that they sent one request at a time.
    ``untold``: scenarios that the run does not play; None where nobody knew of any. On engines in use: ``noise`` of
    logprobs that was measured beforehand, ``foreign``: secrets of other prompts, and ``again``: the cell whose finding
    this one tests."""

    cell: str
    attempt: int
    settings: dict[str, Plain]
    engine_key: str
    adapter: str
    expect: dict[str, Plain]
    oracle: Literal["aligned", "split_matched"]
    step: int | None
    lengths: list[int]
    blind: list[dict[str, str]]
    counters: bool
    baseline: bool
    digests: bool
    fault: str | None
    load_failure_policy: str | None = None
    lossy: bool = False
    scenario: str = "replay"
    program: Table | None = None
    program_digest: str | None = None
    untold: list[str] | None = None
    noise: float | None = None
    foreign: list[str] | None = None
    again: str | None = None
    deterministic: bool | None = None


@kind("plan.invalid")
class PlanInvalid:
    """A combination that the grid asked for and that can't run."""

    settings: dict[str, Plain]
    why: str


# engines


@kind("engine.start")
class EngineStart:
    """``role``: the name of its site. ``cell``: of which it is alone, started and stopped by steps of its program.
    ``started``: a process as a "fork" of one that has imported vLLM, or "stock"."""

    engine: str
    engine_key: str
    role: str
    attempt: int
    argv: list[str]
    launcher: str
    log: str | None
    env: dict[str, str] = field(default_factory=dict)
    started: str | None = None
    cell: str | None = None


@kind("engine.ready")
class EngineReady:
    engine: str
    start_s: float


@dataclass(frozen=True)
class Effective:
    """Read in the worker: shape, stride, num_blocks, num_layers, ... beside what is named here; what could not be read
    is absent. ``connector_build``: what the adapter knows of the connector's own code. ``ranks``: how many workers
    answered, where more than one; what is named is the first one's, ``ranks_differ`` what they don't say alike."""

    versions: dict[str, Plain] = field(default_factory=dict)
    connector_build: dict[str, Plain] = field(default_factory=dict)
    connector: str | None = None
    gpu: str | None = None
    layout: str | None = None
    attention_backend: str | None = None
    dtype: str | None = None
    kv_cache_dtype: str | None = None
    block_size: int | None = None
    max_num_batched_tokens: int | None = None
    tensor_parallel: int | None = None
    threads: int | None = None
    batch_invariant: bool | None = None
    ranks: int | None = None
    ranks_differ: dict[str, list[JSON]] = field(default_factory=dict)  # type: ignore[valid-type]


@kind("engine.config")
class EngineConfig:
    engine: str
    effective: Effective


@kind("engine.failed")
class EngineFailed:
    """``stage``: "start", "prepare" or "run". ``error``: class name of base.errors. ``log``: of a server, where the
    tail is that one's."""

    engine: str
    stage: str
    error: str
    cause: str
    log_tail: str
    log: str | None = None


@kind("engine.stop")
class EngineStop:
    engine: str
    graceful: bool
    stop_s: float


# cells. A cell with cell.end in some attempt is finished; --resume does not run it again.


@dataclass(frozen=True, kw_only=True)
class _OfCell:
    """``engine``: the one that it is lent; None where its program starts all of its own."""

    cell: str
    engine: str | None
    attempt: int


@kind("cell.begin")
class CellBegin(_OfCell):
    pass


@kind("cell.end")
class CellEnd(_OfCell):
    pass


@dataclass(frozen=True, kw_only=True)
class _OfBaseline:
    """The same for the two arms of the baseline engine."""

    engine: str
    engine_key: str
    attempt: int


@kind("baseline.begin")
class BaselineBegin(_OfBaseline):
    pass


@kind("baseline.end")
class BaselineEnd(_OfBaseline):
    pass


# arms


@dataclass(frozen=True, kw_only=True)
class _OfArm:
    """``arm``: name of a Send of the program."""

    engine: str
    cell: str | None
    arm: str


@kind("arm.begin")
class ArmBegin(_OfArm):
    pass


@kind("arm.end")
class ArmEnd(_OfArm):
    pass


@kind("expect.hit")
class ExpectHit(_OfArm):
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
class RequestSent(_OfArm):
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
class ResetLocal(_OfArm):
    """``ok`` is None where vLLM does not tell."""

    ok: bool | None
    tries: int


@kind("overwrite.free")
class OverwriteFree(_OfArm):
    ok: bool
    blocks: int
    seed: int


# what is counted over one arm


@dataclass(frozen=True)
class Histogram:
    sum_s: float
    count: int


@kind("metrics.delta")
class MetricsDelta(_OfArm):
    """Deltas by vLLM's names without prefix and _total: local_compute, local_cache_hit, external_kv_transfer,
    prompt_tokens, external_queries, external_hits, preemptions; absent when the engine has no such series.
    ``complete``: the count reached ``requests`` before the limit. ``at_work``: requests that ran or waited when it was
    read first or last; None where nobody else uses the engine."""

    requests: int
    counters: dict[str, float]
    ttft: Histogram
    complete: bool
    went_back: bool
    at_work: int | None = None


@kind("connector.evidence")
class ConnectorEvidence(_OfArm):
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
class DigestTaken(_OfArm):
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
class DigestSample(_OfArm):
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
class DigestCost(_OfArm):
    """Seconds that hashing took during one arm in the worker that it took longest."""

    cost_s: float


@kind("fault.fired")
class FaultFired(_OfArm):
    """``rank`` is None where the engine has one, or none is known."""

    fault: str
    count: int
    rank: int | None = None


@kind("step.seen")
class StepSeen(_OfArm):
    """What the player counted during one Send, such as clients that went away ("gone") or, as it
    begins, other engines of its store that run ("engines_beside") and that ran ("engines_ended")."""

    what: str
    count: int


# what the nemesis does, in the same history as everybody else; see ``Break`` in ``program.py``


@dataclass(frozen=True, kw_only=True)
class _OfNemesis:
    cell: str
    what: str
    how: str
    target: str


@kind("nemesis.begin")
class NemesisBegin(_OfNemesis):
    pass


@kind("nemesis.end")
class NemesisEnd(_OfNemesis):
    pass


@kind("store.empty")
class StoreEmpty:
    """``ok`` is None where vLLM does not tell; True proves nothing of a connector that has no reset."""

    cell: str
    store: str
    ok: bool | None


@kind("note")
class Note:
    """Something worth reading that no rule judges."""

    text: str
    engine: str | None = None
