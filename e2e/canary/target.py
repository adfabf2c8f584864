"""One engine in use: who it is, what it serves, and whether it wants to be left alone."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field

from e2e.base.errors import EngineAnswer, EngineCrashed, EngineError, EngineTimeout
from e2e.canary.budget import Bucket, Pauses, Share, Slow
from e2e.observe.metrics import Snapshot
from e2e.replay.client import EngineClient
from e2e.replay.prompts import Encode

#: Texts whose tokens are kept: the documents, which don't change.
_KEPT_TEXTS = 64


@dataclass(frozen=True)
class Identity:
    """What must stay the same for answers to be comparable."""

    model: str
    version: str


@dataclass
class Target:
    """``name``: of its site. ``tokens``: the budget. ``stores``: tokens of KV that probes may put into its store.
    ``external``: hits so far, None where it counts none. ``spent``, ``stored``: so far."""

    name: str
    url: str
    client: EngineClient
    tokens: Bucket
    stores: Bucket
    share: Share
    pauses: Pauses
    slow: Slow = field(default_factory=Slow)
    identity: Identity | None = None
    last: Snapshot | None = None
    external: float | None = None
    restarts: int = 0
    spent: int = 0
    stored: int = 0

    def __post_init__(self) -> None:
        self.encode = remembering(self.client.tokenize)

    def ask(self) -> Identity:
        """Raises EngineError where it does not answer as a vLLM does."""
        self.identity = Identity(self.client.models()[0], self.client.version())
        return self.identity

    def look(self, now_s: float) -> Snapshot:
        """Its counters. One that was started anew is asked again who it is."""
        now = Snapshot.parse(self.client.metrics())
        if self.last is not None and now.went_back(self.last):
            self.restarts += 1
            self.identity = None
        self.last = now
        counts = now.counters
        self.share.saw(counts.get("prompt_tokens", 0.0) + counts.get("generation_tokens", 0.0), now_s)
        self.external = counts.get("external_kv_transfer", counts.get("external_hits"))
        return now

    def paid(self, tokens: int, stored: int, now_s: float) -> None:
        self.spent += tokens
        self.stored += stored
        self.tokens.take(tokens, now_s)
        self.stores.take(stored, now_s)
        self.share.spent(tokens)

    def why_not(self, tokens: int, stored: int, now_s: float) -> str:
        """Why it is left alone now, by its short name; empty: nothing speaks against it."""
        if not self.pauses.over(now_s):
            return "paused"
        if not self.tokens.has(tokens, now_s):
            return "budget"
        if not self.stores.has(stored, now_s):
            return "store_budget"
        return "" if self.share.allows(tokens, now_s) else "share"


def why(error: EngineError) -> str:
    """A closed, short list, fit for a label: what a target that can't be probed does."""
    if isinstance(error, EngineTimeout):
        return "timeout"
    if isinstance(error, EngineCrashed):
        return "unreachable"
    if isinstance(error, EngineAnswer):
        return "garbage" if error.status < 400 else f"http_{error.status}"
    return "engine_error"


def remembering(encode: Encode) -> Encode:
    """Documents are encoded once, not for each probe."""
    known: OrderedDict[str, list[int]] = OrderedDict()

    def once(text: str) -> list[int]:
        if text not in known:
            known[text] = encode(text)
            if len(known) > _KEPT_TEXTS:
                known.popitem(last=False)
        known.move_to_end(text)
        return known[text]

    return once
