"""What a verdict rests on, for a reader's eye: what each Send was served, how two answers part, where the KV is wrong.
Derived from a recording; no rule looks at it. Plain data, JSON values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

#: Where a Send's tokens come from, as its claims have it.
COLD, LOCAL, EXTERNAL = "cold", "local", "external"
#: One place of a map: KV as it was computed, other KV, or none that the recording tells of.
RIGHT, WRONG, UNREAD = "=", "x", "."


@dataclass(frozen=True)
class Bounds:
    """Tokens, both ends included."""

    least: int
    most: int


@dataclass(frozen=True)
class Asked:
    """One request. ``tokens``: length of its prompt; ``cached``: tokens that came out of a cache, as the engine told;
    ``ttft_s``: seconds to its first token, as the client saw it. None where that was not recorded."""

    request: str
    prompt: int
    tokens: int
    cached: int | None
    ttft_s: float | None


@dataclass(frozen=True)
class Step:
    """One Send. ``connector``: does its engine have one. ``source``: COLD, LOCAL, EXTERNAL or None. ``alone``: one
    request at a time. Tokens of all its requests together: ``local``, ``external`` predicted; ``seen_*`` as vLLM
    counts them, ``seen_connector`` as the connector does."""

    site: str
    send: str
    connector: bool
    source: str | None
    alone: bool
    local: Bounds | None
    external: Bounds | None
    seen_local: int | None
    seen_external: int | None
    seen_connector: int | None
    asked: tuple[Asked, ...]


@dataclass(frozen=True)
class Choice:
    """A token that could have been chosen; ``text`` None where no tokenizer is at hand."""

    token: str
    text: str | None
    logprob: float


@dataclass(frozen=True)
class Chosen:
    """What an answer has in one position; ``text``: what became readable with it. ``top``: likeliest first."""

    token: int
    text: str | None
    logprob: float | None
    top: tuple[Choice, ...] = ()


@dataclass(frozen=True)
class Parting:
    """Two answers around their first difference: (position, expected, found), None past the end of an answer."""

    prompt: int
    expected: str
    found: str
    position: int
    rows: tuple[tuple[int, Chosen | None, Chosen | None], ...]


@dataclass(frozen=True)
class KvMap:
    """KV of one prompt on one ``rank``, held against what ``reference`` computed: a text for each layer, a sign for
    each block of ``block_size`` tokens: RIGHT, WRONG (K or V of any head) or UNREAD. ``read``: which one of them."""

    site: str
    send: str
    reference: str
    prompt: int
    rank: int
    read: int
    block_size: int
    layers: tuple[str, ...]

    @property
    def wrong(self) -> bool:
        return any(WRONG in layer for layer in self.layers)


@dataclass(frozen=True)
class Exhibit:
    """Of one cell. ``asked``: settings that it was to have, as far as they can be checked."""

    asked: Mapping[str, object] = field(default_factory=dict)
    steps: tuple[Step, ...] = ()
    parting: Parting | None = None
    maps: tuple[KvMap, ...] = ()
