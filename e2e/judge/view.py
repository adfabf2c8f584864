"""A cell as the rules see it: typed, whole, independent of the order of events. Built by ``assemble.py``."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from e2e.base.program import Happened, Program, Send, Site, Span, Where
from e2e.judge.beside import Beside, beside
from e2e.judge.taken import Table, Taken


@dataclass(frozen=True)
class Plan:
    """``plan.cell``, see base/event.py. Tokens throughout."""

    settings: Mapping[str, object]
    engine_key: str
    adapter: str
    expect: Mapping[str, object]
    oracle: str
    step: int | None
    program: Program
    blind: tuple[Mapping[str, object], ...]
    counters: bool
    digests: bool
    fault: str | None
    load_failure_policy: str | None
    lossy: bool
    untold: tuple[str, ...] = ()
    noise: float | None = None
    foreign: tuple[str, ...] = ()
    timed: bool = True


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

    @cached_property
    def usable(self) -> bool:
        """Has tokens, one finite logprob each, and its top logprobs are all there or none."""
        count = len(self.tokens)
        values = [*self.logprobs, *(value for top in self.top for value in top.values())]
        whole = count > 0 and len(self.logprobs) == count and len(self.top) in (0, count)
        return whole and all(map(math.isfinite, values))

    def first(self, tokens: int) -> Answer:
        """What of it was there after so many tokens."""
        parts = (self.tokens, self.logprobs, self.top, self.text)
        names = ("tokens", "logprobs", "top", "text")
        return replace(self, **{name: part[:tokens] for name, part in zip(names, parts, strict=True)})

    @property
    def ttft_s(self) -> float:
        return (self.first_ns - self.sent_ns) / 1e9


@dataclass(frozen=True)
class Expected:
    """What one text must be served; ``tokens`` is its length."""

    local: Span
    external: Span
    tokens: int
    digest: str

    @property
    def both(self) -> Span:
        return plus((self.local, self.external))


def plus(spans: Sequence[Span]) -> Span:
    return Span(sum(span.least for span in spans), sum(span.most for span in spans))


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
    """What was recorded of one Send. What was not recorded is None or missing, and no rule takes that for zero.
    ``gone``: prompts whose client went away, or that were to fail. ``evidence``: what the connector says, of each rank
    that told or once for all. ``seen``: what the player counted. ``crowded``: on an engine in use, others may have been
    at work meanwhile, so its counters say nothing of these requests.
    """

    name: str
    begun: int = 0
    ended: int = 0
    expected: dict[int, Expected] = field(default_factory=dict)
    answers: dict[int, Answer] = field(default_factory=dict)
    failures: list[Failure] = field(default_factory=list)
    gone: list[int] = field(default_factory=list)
    indeterminate: list[int] = field(default_factory=list)
    repeated: list[int] = field(default_factory=list)
    metrics: Mapping[str, object] | None = None
    evidence: tuple[Mapping[str, object], ...] = ()
    reset: Mapping[str, object] | None = None
    overwrite: Mapping[str, object] | None = None
    seen: dict[str, int] = field(default_factory=dict)
    crowded: bool = False

    def counter(self, name: str) -> int | None:
        """Delta of one of vLLM's counters over this arm, in tokens (or preemptions)."""
        value = self.metrics["counters"].get(name) if self.metrics else None
        return None if value is None else int(value)

    def connector_counter(self, name: str) -> list[int | None]:
        """Delta of one of the connector's own counters, by rank; None where it is missing (it starts when it rises)."""
        values = [told["counters"].get(name) for told in self.evidence]
        return [None if value is None else int(value) for value in values]

    def connector_total(self, name: str) -> int:
        """The same of all ranks together: what never happened need not be counted."""
        return sum(value or 0 for value in self.connector_counter(name))

    @property
    def loads(self) -> list[Mapping[str, object]]:
        return [load for told in self.evidence for load in told["loads"] or ()]

    @property
    def connector_errors(self) -> list[str]:
        """The first errors of its own that the connector logged in this arm."""
        return [str(line) for told in self.evidence for line in told.get("errors") or ()]

    def predicted(self, source: str) -> Span | None:
        """Tokens that all prompts of this arm together must be served by ``source`` ("local" or "external"). Of one
        whose client went away nobody knows."""
        if not self.expected or self.expected.keys() != self.answers.keys() | {*self.gone}:
            return None
        spans = {prompt: getattr(hit, source) for prompt, hit in self.expected.items()}
        return plus([Span(0, span.most) if prompt in self.gone else span for prompt, span in spans.items()])

    @property
    def forgiven(self) -> Arm:
        """The same where requests may fail: as if their clients had gone away; how many did is seen."""
        gone = [*self.gone, *(failure.prompt for failure in self.failures)]
        return replace(self, gone=gone, failures=[], seen={**self.seen, "refused": len(self.failures)})

    @property
    def in_use(self) -> Arm:
        """The same on an engine that others use too: counters are its own only where they count no token more than its
        requests have, and nobody was at work before or after them."""
        told = {prompt: hit.tokens for prompt, hit in self.expected.items()}
        whole = self.metrics is not None and self.metrics["complete"] and told.keys() == self.answers.keys()
        ours = {
            "prompt_tokens": sum(told.values()),
            "generation_tokens": sum(len(answer.tokens) for answer in self.answers.values()),
        }
        whole = whole and (self.counter("finished") or 0) <= len(self.answers)  # what others gave up is there alone
        if whole and self.metrics.get("at_work") == 0 and all(self.counter(n) == own for n, own in ours.items()):
            return self
        reset = self.metrics is not None and self.metrics["went_back"]
        return replace(self, crowded=True, metrics=self.metrics if reset else None)

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
        return self.connector_total("load_failures") > 0 or any(load.get("failed") for load in self.loads)


@dataclass(frozen=True)
class Ran:
    """One engine start. ``started``: it was recorded, and with it what the engine is."""

    name: str
    effective: Mapping[str, object] | None
    started: bool


@dataclass(frozen=True)
class Side:
    """One site's part in a cell. ``engines``: its starts in order. ``finished``: what it was sent ran to its end.
    ``lent``: no step starts it."""

    site: Site
    engines: tuple[Ran, ...]
    arms: Mapping[str, Arm]
    finished: bool
    lent: bool

    @property
    def name(self) -> str:
        return self.site.name

    @property
    def effective(self) -> Mapping[str, object] | None:
        return self.engines[-1].effective if self.engines else None

    @cached_property
    def reports_cached(self) -> bool:
        """vLLM up to 0.23 leaves ``cached_tokens`` out when it is 0: once it reports any, None means 0."""
        return any(answer.cached is not None for arm in self.arms.values() for answer in arm.answers.values())


@dataclass(frozen=True)
class Sent:
    """A Send of the program and what was recorded of it."""

    send: Send
    side: Side
    arm: Arm
    beside: Beside

    @property
    def alone(self) -> bool:
        return self.beside.alone and not self.arm.crowded

    @property
    def fresh(self) -> bool:
        return self.beside.fresh

    @property
    def name(self) -> str:
        return f"{self.side.name} {self.send.name}"

    @property
    def place(self) -> dict[str, object]:
        return {"engine": self.side.name, "arm": self.send.name}

    def asked_for(self, *what: str) -> bool:
        """Is it claimed that one of these happens?"""
        return any(isinstance(claim, Happened) and claim.what in what for claim in self.send.claims)

    def answer(self, prompt: int, beside: Sent | None = None) -> Answer | None:
        """An answer that can be compared, or None; as much of it as ``beside`` was asked for, too."""
        found = self.arm.answers.get(prompt)
        if found is None or not found.usable:
            return None
        asked = [sent.send.answer for sent in (self, beside) if sent is not None and sent.send.answer is not None]
        return found.first(min(asked)) if beside is not None and asked else found


@dataclass(frozen=True)
class CellView:
    """``sides``: in the order of the program; a lent plain site of which nothing was recorded is not there.
    ``unplanned``: (site, arm) of what was recorded for this cell and that its program does not send. ``acts``: kind and
    data of what was done to servers and stores."""

    cell: str
    attempt: int
    plan: Plan
    begun: bool
    ended: bool
    sides: Mapping[str, Side]
    failures: tuple[Failure, ...]
    digests: tuple[Taken, ...]
    fired: tuple[Mapping[str, object], ...]
    unplanned: tuple[tuple[str, str], ...] = ()
    acts: tuple[tuple[str, Mapping[str, object]], ...] = ()
    strict: bool = False

    @property
    def program(self) -> Program:
        return self.plan.program

    @cached_property
    def sent(self) -> tuple[Sent, ...]:
        """What was recorded of the program's Sends, in its order."""
        around = beside(self.program)
        recorded = [
            (send, side, side.arms[send.name])
            for send in self.program.sends
            if (side := self.sides.get(send.site)) is not None and send.name in side.arms
        ]
        return tuple(
            Sent(send, side, arm.forgiven if around[send.where].forgiven else arm, around[send.where])
            for send, side, arm in recorded
        )

    @property
    def prompts(self) -> range:
        return range(len(self.program.texts))

    def policy(self, side: Side) -> object:
        """What vLLM does there with a request whose load failed."""
        return side.site.settings.get("load_failure_policy", self.plan.load_failure_policy)

    def ranks(self, side: Side) -> int:
        """How many of its ranks have to tell: as many as the engine says that it has, or was to have."""
        settings = {**self.plan.settings, **side.site.settings}
        told = [(side.effective or {}).get(name) for name in ("ranks", "tensor_parallel")]
        return max(int(n or 1) for n in (*told, settings.get("tensor_parallel")))

    @cached_property
    def table(self) -> Table:
        """All digests by what they are of."""
        return Table.of(self.digests)

    @property
    def external(self) -> list[Sent]:
        """What came, or was to come, from a connector."""
        return [sent for sent in self.sent if sent.send.external]

    @property
    def connectors(self) -> list[Side]:
        return [side for side in self.sides.values() if side.site.connector]

    def of(self, where: Where) -> Sent | None:
        return next((sent for sent in self.sent if sent.send.where == where), None)

    def place(self, sent: Sent) -> dict[str, object]:
        """Where a finding of a connector's Send is; which engine where there is more than one with a connector."""
        return sent.place if len(self.connectors) > 1 else {"arm": sent.send.name}
