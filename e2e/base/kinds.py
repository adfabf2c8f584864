"""The vocabulary of events: one class a kind, whose fields are the keys of its dict; those with a default may be left
out. Those of single Sends stand in ``kinds_arm.py``, of comparisons in ``kinds_gain.py``; what the words mean in
``event.py``. ``recording/`` checks every line against them.
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


def kind(*names: str) -> Callable[[type], type]:
    """Kinds of the same keys are one class."""

    def register(shape: type) -> type:
        made = dataclass(frozen=True, kw_only=True)(shape)
        KINDS.update(dict.fromkeys(names, made))
        return made

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
    this one tests. ``timed``: false where engines of other cells run beside its own."""

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
    timed: bool = True


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
    """Read in the worker: shape, stride, num_blocks, ... beside what is named here; what could not be read is absent.
    ``connector_build``: what the adapter knows of the connector's own code. ``ranks``: how many workers
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
    num_layers: int | None = None
    heads: int | None = None
    head_size: int | None = None
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


@kind("cell.begin", "cell.end")
class OfCell:
    """``engine``: the one that it is lent; None where its program starts all of its own."""

    cell: str
    engine: str | None
    attempt: int


@kind("baseline.begin", "baseline.end")
class OfBaseline:
    """The same for the two arms of the baseline engine."""

    engine: str
    engine_key: str
    attempt: int


# what the nemesis does, in the same history as everybody else; see ``Break`` in ``program.py``


@kind("nemesis.begin", "nemesis.end")
class OfNemesis:
    cell: str
    what: str
    how: str
    target: str


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
