"""A story as a value: which engines there are, what each is sent and when, and what every step must show.

A program is made by a scenario, recorded before anything starts (``plan.cell``), played by the player and judged by its
claims. Steps are known by where and what, such as ("connector", "cold"). Lengths and hits are in tokens throughout.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import cached_property

import msgspec

#: (site, name of a Send): what a claim refers to. Only earlier ones can be referred to.
Where = tuple[str, str]


class Pool(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Room of a store: ``tokens`` of KV. Is it full, it ``evicts`` what was used least for what is new, or refuses what
    is new."""

    tokens: int
    evicts: bool


class Site(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One engine of the story. ``connector``: has it one, or is it plain. ``store``: the pool that it is given, by
    name; sites of one store share it. ``settings``: axes in which it differs from its cell. ``kv_tokens``: room in its
    KV cache, None: as much as all of its texts need at once. ``step``: tokens of a prefill step, None: its cell's.
    ``pool``: room in its store, None: enough.
    ``slow_s``: what its connector moves beside the compute takes so many seconds longer, by the unit.
    ``weights``: 0: those of the model, else the seed of others of the same shape. ``in_use``: others use it too, so
    nothing there is reset or overwritten, and what it counts is not of our requests alone.

    A site that no step starts is lent: the player starts it, or has it still from the cell before, and what a lent
    plain site is sent is played once for all cells of an engine key."""

    name: str
    connector: bool = True
    store: str | None = "pool"
    settings: Mapping[str, str | int] = {}
    kv_tokens: int | None = None
    step: int | None = None
    pool: Pool | None = None
    slow_s: float = 0.0
    weights: int = 0
    in_use: bool = False


class Text(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A recipe for a prompt of ``tokens`` tokens. ``like``: index of an earlier text whose first ``shared`` tokens
    stand in front of it. ``follows``: the Send whose answer to that text stands behind these, as in the next turn of a
    chat. ``body``: an earlier text whose tokens stand behind these, in the places that they have there."""

    tokens: int
    like: int | None = None
    shared: int = 0
    follows: Where | None = None
    body: int | None = None


# claims: what one Send must show


class Span(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Tokens, both ends included."""

    least: int
    most: int


class Hit(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What one text is served by vLLM's own prefix cache and by the connector."""

    local: Span
    external: Span


class Claim(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, tag_field="claim"):
    """What one Send must show."""


class Cold(Claim, frozen=True, tag="cold"):
    """Nothing of it comes from any cache, since nobody can know it."""


class Served(Claim, frozen=True, tag="served"):
    """It comes from a cache, ``external``: from the connector, wholly or in part. ``hits``: by text in the order of the
    Send, recorded before each request (``expect.hit``)."""

    external: bool
    hits: tuple[Hit, ...] = ()


class Missed(Claim, frozen=True, tag="missed"):
    """This must not be served at all, though something like it is in the store."""


class Like(Claim, frozen=True, tag="like"):
    """Its answers are those of these Sends. Whether they can be held against each other bit for bit is decided by what
    was seen; see docs/oracle.md."""

    steps: tuple[Where, ...]


class Computed(Claim, frozen=True, tag="computed"):
    """By digests: the KV that it computed is what ``step`` computed, where both took the same steps."""

    step: Where


class Loaded(Claim, frozen=True, tag="loaded"):
    """By digests: the KV that attention read in it is what ``step`` computed."""

    step: Where


class Happened(Claim, frozen=True, tag="happened"):
    """``what`` was counted at least so often during it: a counter of vLLM (preemptions; ``local`` and ``external``:
    tokens that came out of either cache), of the connector (evictions, refusals ...) or of the player (``step.seen``);
    or of its requests so many were ``answered``, or ``refused`` as they might be."""

    what: str
    least: int = 1


Claims = Cold | Served | Missed | Like | Computed | Loaded | Happened


# steps


class Step(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, tag_field="do"):
    """One thing that the player does."""


class Start(Step, frozen=True, tag="start"):
    site: str


class Stop(Step, frozen=True, tag="stop"):
    """``killed``: SIGKILL, and nothing is asked of it before."""

    site: str
    killed: bool = False


class Send(Step, frozen=True, tag="send"):
    """Texts by index, each once, ``at_once`` at a time. ``answer``: output tokens, None: as many as the run asks for.
    ``salt``: equal for what may share KV; "" is the cell's own. ``gone_s``: the client goes away so many seconds after
    it has sent; ``gone_tokens``: once it has been told so many. ``spread_s``: those that are at once go out within so
    many seconds, not together. ``after_s``: the client waits so long before it sends.
    ``lora``: seed of the adapter that answers, 0: none does. ``settings``: axes in which its requests differ from their
    site; only those that go with each request."""

    name: str
    site: str
    texts: tuple[int, ...]
    claims: tuple[Claims, ...]
    at_once: int = 1
    answer: int | None = None
    salt: str = ""
    gone_s: float | None = None
    spread_s: float = 0.0
    gone_tokens: int | None = None
    after_s: float = 0.0
    lora: int = 0
    settings: Mapping[str, str | int] = {}

    @property
    def goes(self) -> bool:
        """Does the client go away before its answer is whole?"""
        return self.gone_s is not None or self.gone_tokens is not None

    @property
    def where(self) -> Where:
        return (self.site, self.name)

    def claim(self, kind: type[Claim]) -> Claim | None:
        """The first of its claims of this kind."""
        return next((claim for claim in self.claims if isinstance(claim, kind)), None)

    @property
    def like(self) -> tuple[Where, ...]:
        """Whose answers it must have."""
        return tuple(where for claim in self.claims if isinstance(claim, Like) for where in claim.steps)

    @property
    def external(self) -> bool:
        """Is any of it to come from the connector?"""
        return any(isinstance(claim, Served) and claim.external for claim in self.claims)


class Forget(Step, frozen=True, tag="forget"):
    """vLLM's own prefix cache is reset."""

    site: str


class Scribble(Step, frozen=True, tag="scribble"):
    """Free blocks are overwritten with random values, so that a load that writes nothing can't find the right ones."""

    site: str


class Empty(Step, frozen=True, tag="empty"):
    """The store forgets all that it holds. Never done to a store that somebody else gave."""

    store: str


class Break(Step, frozen=True, tag="break"):
    """``what``: "engine", "server", "object", "space" ...; ``how``: what is done to it, a word that the nemesis knows.
    ``target``: name of the site, server or store; store/server
    where several stores have one. ``after_s``: seconds into the step beside which it stands."""

    what: str
    how: str
    target: str
    after_s: float = 0.0


class Mend(Step, frozen=True, tag="mend"):
    """Undoes a Break of the same words; what is still broken at the end is mended by the player."""

    what: str
    how: str
    target: str


class Together(Step, frozen=True, tag="together"):
    """All at once; it ends when all have ended. No site is sent two things, whose counters could not be told apart."""

    steps: tuple[Send | Break | Mend | Stop, ...]


Steps = Start | Stop | Send | Forget | Scribble | Empty | Break | Mend | Together


class Program(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, dict=True):
    """What one cell does. ValueError for one that could not be judged, see ``buildable.py``."""

    sites: tuple[Site, ...]
    texts: tuple[Text, ...]
    steps: tuple[Steps, ...]
    scenario: str = "replay"

    def __post_init__(self) -> None:
        from e2e.base.buildable import check  # here, since it speaks of all that stands above

        check(self)

    @cached_property
    def _site_named(self) -> dict[str, Site]:
        return {site.name: site for site in reversed(self.sites)}

    def site(self, name: str) -> Site:
        return self._site_named[name]

    @cached_property
    def sends(self) -> tuple[Send, ...]:
        return tuple(step for step in self.flat if isinstance(step, Send))

    @cached_property
    def flat(self) -> tuple[Step, ...]:
        """Steps in order, those at once one after the other."""
        return tuple(each for step in self.steps for each in (step.steps if isinstance(step, Together) else (step,)))

    def answered(self, index: int) -> int | None:
        """Where a text's first generated token stands, None: it has none."""
        text = self.texts[index]
        if text.like is None:
            return None
        before = self.answered(text.like)
        mine = text.shared if text.follows else None
        return before if before is not None and before < text.shared else mine

    @cached_property
    def _send_at(self) -> dict[Where, Send]:
        return {send.where: send for send in reversed(self.sends)}

    def send(self, where: Where) -> Send:
        return self._send_at[where]

    def common(self, one: int, other: int) -> int:
        """Tokens in front that two texts share."""
        if one == other:
            return self.texts[one].tokens
        later, earlier = max(one, other), min(one, other)
        text = self.texts[later]
        return 0 if text.like is None or text.like >= later else min(text.shared, self.common(text.like, earlier))

    def identity(self, send: Send) -> tuple[int, int]:
        """Weights and adapter: what one computes of a text, no other one does."""
        return self.site(send.site).weights, send.lora

    def spans(self, site: Site, answer: int) -> list[int]:
        """Tokens of each prompt that it is sent under a salt, with its longest answer. ``answer``: output tokens where
        a Send says nothing else."""
        found: dict[tuple[int, str], int] = {}
        for send in self.sends:
            if send.site == site.name:
                for text in send.texts:
                    span = self.texts[text].tokens + (send.answer or answer)
                    found[text, send.salt] = max(span, found.get((text, send.salt), 0))
        return list(found.values())

    def adapters(self, site: Site) -> tuple[int, ...]:
        """Seeds of those that its engine needs."""
        return tuple(sorted({send.lora for send in self.sends if send.site == site.name} - {0}))

    @cached_property
    def _started(self) -> frozenset[str]:
        return frozenset(step.site for step in self.flat if isinstance(step, Start))

    def lent(self, site: Site) -> bool:
        return site.name not in self._started

    @property
    def plain(self) -> tuple[Site, ...]:
        return tuple(site for site in self.sites if not site.connector)

    @cached_property
    def shared(self) -> tuple[Site, ...]:
        """Plain sites that are lent: what they are sent is played once, before everything else."""
        return tuple(site for site in self.plain if self.lent(site))

    def hits(self, send: Send) -> tuple[Hit, ...]:
        """What each of its texts is to be served, as far as its claims say."""
        served = send.claim(Served)
        if served is None:
            return (Hit(Span(0, 0), Span(0, 0)),) * len(send.texts)
        whole = (self.texts[text].tokens for text in send.texts)
        return served.hits or tuple(Hit(Span(0, n), Span(0, n if served.external else 0)) for n in whole)

    @property
    def digest(self) -> str:
        """Recorded with it: a claim that got lost is seen, since the rules that hang on it would be blind quietly."""
        return hashlib.sha256(msgspec.json.encode(self, order="sorted")).hexdigest()


def plainly(program: Program) -> dict[str, object]:
    """As JSON values, for a recording."""
    return msgspec.json.decode(msgspec.json.encode(program))


def program_of(table: object) -> Program:
    """What ``plainly`` gave. ValueError for anything else."""
    try:
        return msgspec.convert(table, Program)
    except msgspec.ValidationError as error:
        raise ValueError(f"no program: {error}") from error
