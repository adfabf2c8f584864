"""A cell as the rules see it: typed, whole, independent of the order of events. Built by ``assemble.py``."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

CONNECTOR, BASELINE = "connector", "baseline"
EXTERNAL_ARMS = ("external", "external_again")
ARMS_OF = {CONNECTOR: ("cold", "local", *EXTERNAL_ARMS), BASELINE: ("cold", "local")}


@dataclass(frozen=True)
class Plan:
    """``plan.cell``, see base/event.py. Tokens throughout."""

    settings: Mapping[str, object]
    engine_key: str
    adapter: str
    expect: Mapping[str, object]
    oracle: str
    step: int | None
    lengths: tuple[int, ...]
    blind: tuple[Mapping[str, object], ...]
    counters: bool
    baseline: bool
    deterministic: bool
    digests: bool
    fault: str | None
    load_failure_policy: str | None

    @property
    def concurrent(self) -> bool:
        return int(self.settings.get("concurrency", 1)) > 1


@dataclass(frozen=True)
class Answer:
    """One finished request. ``logprobs``: one per output token, ``top``: the top few per output token or empty.
    ``text``: what became readable with each, or empty; no rule looks at it."""

    request: str
    tokens: tuple[int, ...]
    logprobs: tuple[float, ...]
    top: tuple[Mapping[str, float], ...]
    finish_reason: str | None
    cached: int | None
    sent_ns: int
    first_ns: int
    text: tuple[str, ...] = ()

    @property
    def usable(self) -> bool:
        """Has tokens, one finite logprob each, and its top logprobs are all there or none."""
        count = len(self.tokens)
        values = [*self.logprobs, *(value for top in self.top for value in top.values())]
        whole = count > 0 and len(self.logprobs) == count and len(self.top) in (0, count)
        return whole and all(map(math.isfinite, values))

    @property
    def ttft_s(self) -> float:
        return (self.first_ns - self.sent_ns) / 1e9


@dataclass(frozen=True)
class Expected:
    local: int
    external: int
    digest: str


@dataclass(frozen=True)
class Failure:
    """A failed request (``prompt`` set) or a failed engine; ``error`` is a class name of base.errors."""

    error: str
    message: str
    engine: str = ""
    stage: str = ""
    arm: str = ""
    prompt: int | None = None


@dataclass
class Arm:
    """One arm of one engine. What was not recorded is None or missing, and no rule takes that for zero. ``evidence``:
    what the connector says, of each rank that told or once for all."""

    name: str
    begun: int = 0
    ended: int = 0
    expected: dict[int, Expected] = field(default_factory=dict)
    answers: dict[int, Answer] = field(default_factory=dict)
    failures: list[Failure] = field(default_factory=list)
    indeterminate: list[int] = field(default_factory=list)
    repeated: list[int] = field(default_factory=list)
    metrics: Mapping[str, object] | None = None
    evidence: tuple[Mapping[str, object], ...] = ()
    reset: Mapping[str, object] | None = None
    overwrite: Mapping[str, object] | None = None

    def counter(self, name: str) -> int | None:
        """Delta of one of vLLM's counters over this arm, in tokens (or preemptions)."""
        value = self.metrics["counters"].get(name) if self.metrics else None
        return None if value is None else int(value)

    def connector_counter(self, name: str) -> list[int | None]:
        """Delta of one of the connector's own counters, by rank; None where it is missing (it starts when it rises)."""
        values = [told["counters"].get(name) for told in self.evidence]
        return [None if value is None else int(value) for value in values]

    def connector_failures(self, name: str) -> int:
        """The same of all ranks together: what never failed need not be counted."""
        return sum(value or 0 for value in self.connector_counter(name))

    @property
    def loads(self) -> list[Mapping[str, object]]:
        return [load for told in self.evidence for load in told["loads"] or ()]

    @property
    def connector_errors(self) -> list[str]:
        """The first errors of its own that the connector logged in this arm."""
        return [str(line) for told in self.evidence for line in told.get("errors") or ()]

    def predicted(self, source: str) -> int | None:
        """Tokens that all prompts of this arm together must be served by ``source`` ("local" or "external")."""
        if not self.expected or self.expected.keys() != self.answers.keys():
            return None
        return sum(getattr(expected, source) for expected in self.expected.values())

    @property
    def local(self) -> int | None:
        """Tokens of vLLM's own prefix cache: by source since 0.16, else that cache's hits."""
        by_source = self.counter("local_cache_hit")
        return self.counter("local_hits") if by_source is None else by_source

    @property
    def external(self) -> int | None:
        """External tokens as vLLM counts them: by source since 0.16, else by the external prefix cache's hits."""
        by_source = self.counter("external_kv_transfer")
        return self.counter("external_hits") if by_source is None else by_source

    @property
    def load_failed(self) -> bool:
        return self.connector_failures("load_failures") > 0 or any(load.get("failed") for load in self.loads)


@dataclass(frozen=True)
class Side:
    """One engine's part in a cell: the connector's own, or the baseline engine that has no connector. ``started``: its
    start was recorded, and with it what it is."""

    role: str
    engine: str
    effective: Mapping[str, object] | None
    arms: Mapping[str, Arm]
    finished: bool
    started: bool

    def answer(self, arm: str, prompt: int) -> Answer | None:
        """An answer that can be compared, or None."""
        found = self.arms[arm].answers.get(prompt) if arm in self.arms else None
        return found if found is not None and found.usable else None

    @property
    def reports_cached(self) -> bool:
        """vLLM up to 0.23 leaves ``cached_tokens`` out when it is 0: once it reports any, None means 0."""
        return any(answer.cached is not None for arm in self.arms.values() for answer in arm.answers.values())


@dataclass(frozen=True)
class Taken:
    """``digest.taken``, with its values filled in, and what was sampled of the same request. ``sent``: its request is
    one that this arm sent for this prompt."""

    role: str
    arm: str
    sent: bool
    data: Mapping[str, object]
    sample: Mapping[str, object] | None


@dataclass(frozen=True)
class CellView:
    cell: str
    attempt: int
    plan: Plan
    begun: bool
    ended: bool
    connector: Side
    baseline: Side | None
    failures: tuple[Failure, ...]
    digests: tuple[Taken, ...]
    fired: tuple[Mapping[str, object], ...]
    strict: bool = False

    @property
    def prompts(self) -> range:
        return range(len(self.plan.lengths))

    @property
    def ranks(self) -> int:
        """How many ranks have to tell: as many as an engine says that it has, or was to have."""
        effective = [side.effective for side in self.sides if side.effective]
        told = [table.get(name) for table in effective for name in ("ranks", "tensor_parallel")]
        return max(int(n or 1) for n in (*told, self.plan.settings.get("tensor_parallel")))

    @property
    def sides(self) -> tuple[Side, ...]:
        return (self.connector,) if self.baseline is None else (self.connector, self.baseline)

    @property
    def external_arms(self) -> list[Arm]:
        return [self.connector.arms[name] for name in EXTERNAL_ARMS if name in self.connector.arms]
