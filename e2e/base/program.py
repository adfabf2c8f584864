"""A story as a value: which engines there are, what each is sent and when, and what every step must show.

A program is made by a scenario, recorded before anything starts (``plan.cell``), played by the player and judged by its
claims. Steps are known by where and what, such as ("connector", "cold"). Lengths and hits are in tokens throughout.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import msgspec

#: (site, name of a Send): what a claim refers to. Only earlier ones can be referred to.
Where = tuple[str, str]


class Site(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One engine of the story. ``connector``: has it one, or is it plain. ``store``: the pool that it is given, by
    name; sites of one store share it. ``settings``: axes in which it differs from its cell. ``kv_tokens``: room in its
    KV cache, None: as much as all of its texts need at once.

    A site that no step starts is lent: the player starts it, or has it still from the cell before, and what a lent
    plain site is sent is played once for all cells of an engine key."""

    name: str
    connector: bool = True
    store: str | None = "pool"
    settings: Mapping[str, str | int] = {}
    kv_tokens: int | None = None


class Text(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A recipe for a prompt of ``tokens`` tokens. ``like``: index of an earlier text whose first ``shared`` tokens
    stand in front of it. ``follows``: the Send whose answer to that text stands behind these, as in the next turn of a
    chat."""

    tokens: int
    like: int | None = None
    shared: int = 0
    follows: Where | None = None


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
    """``what`` was counted at least so often during it: a counter of vLLM (preemptions), of the connector (evictions,
    refusals ...) or of the player (``step.seen``)."""

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
    it has sent."""

    name: str
    site: str
    texts: tuple[int, ...]
    claims: tuple[Claims, ...]
    at_once: int = 1
    answer: int | None = None
    salt: str = ""
    gone_s: float | None = None

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
    ``target``: name of the site, server or store. ``after_s``: seconds into the step beside which it stands."""

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


class Program(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What one cell does. ValueError for one that could not be judged: see ``check``."""

    sites: tuple[Site, ...]
    texts: tuple[Text, ...]
    steps: tuple[Steps, ...]
    scenario: str = "replay"

    def __post_init__(self) -> None:
        check(self)

    def site(self, name: str) -> Site:
        return next(site for site in self.sites if site.name == name)

    @property
    def sends(self) -> tuple[Send, ...]:
        return tuple(step for step in self.flat if isinstance(step, Send))

    @property
    def flat(self) -> Iterator[Step]:
        """Steps in order, those at once one after the other."""
        for step in self.steps:
            yield from step.steps if isinstance(step, Together) else (step,)

    def send(self, where: Where) -> Send:
        return next(send for send in self.sends if send.where == where)

    def common(self, one: int, other: int) -> int:
        """Tokens in front that two texts share."""
        if one == other:
            return self.texts[one].tokens
        later, earlier = max(one, other), min(one, other)
        text = self.texts[later]
        return 0 if text.like is None or text.like >= later else min(text.shared, self.common(text.like, earlier))

    def lent(self, site: Site) -> bool:
        return not any(isinstance(step, Start) and step.site == site.name for step in self.flat)

    @property
    def plain(self) -> tuple[Site, ...]:
        return tuple(site for site in self.sites if not site.connector)

    @property
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


def check(program: Program) -> None:
    """Names what is meant, once and earlier; every Send says where it comes from; and what comes from the connector is
    held against something, on blocks that can't hold the right bytes by chance."""
    sites = {site.name: _Site(running=program.lent(site)) for site in program.sites}
    if len(sites) != len(program.sites):
        raise ValueError("two sites of one name")
    for index, text in enumerate(program.texts):
        _check_text(program, index, text)
    sent: set[Where] = set()
    broken: set[tuple[str, str, str]] = set()
    for step in program.steps:
        if isinstance(step, Together):
            _check_together(program, step)
    for step in program.flat:
        _check_nemesis(step, broken)
        engine = isinstance(step, Break) and step.what == "engine"
        name = step.target if engine else getattr(step, "site", None)
        if name is not None and name not in sites:
            raise ValueError(f"there is no site {name}")
        if (engine or isinstance(step, Stop)) and program.lent(program.site(name)):
            raise ValueError(f"{name} is lent: only who starts it may end it")
        if isinstance(step, Empty) and not any(
            program.site(name).store == step.store and site.running for name, site in sites.items()
        ):
            raise ValueError(f"nobody runs who could empty {step.store}")
        site = sites.get(name)
        if site is not None and site.running is isinstance(step, Start):
            raise ValueError(f"{name} is started twice" if site.running else f"{name} does not run")
        if isinstance(step, Start):
            sites[name] = _Site(running=True, overwritten=True)
        elif isinstance(step, Stop):
            sites[name] = _Site()
        elif isinstance(step, Forget):
            sites[name] = _Site(running=True)
        elif isinstance(step, Scribble):
            site.overwritten = not site.warm
        elif isinstance(step, Send):
            _check_send(program, step, sent, site)
            sent.add(step.where)
            site.warm |= {*step.texts}


@dataclass
class _Site:
    """``warm``: texts whose KV its own prefix cache may still hold."""

    running: bool = False
    overwritten: bool = False
    warm: set[int] = field(default_factory=set)


def _check_together(program: Program, together: Together) -> None:
    sends = [step for step in together.steps if isinstance(step, Send)]
    if len({send.site for send in sends}) != len(sends):
        raise ValueError("a site is sent two things at once; make them one Send, with at_once")
    answers = {send.where for send in sends}
    if any(
        0 <= text < len(program.texts) and program.texts[text].follows in answers for s in sends for text in s.texts
    ):
        raise ValueError("an answer is followed while it is given")


def _check_nemesis(step: Step, broken: set[tuple[str, str, str]]) -> None:
    """``broken``: so far, by words; an engine that is killed stays so until it is stopped."""
    if isinstance(step, (Break, Mend)):
        words = (step.what, step.how, step.target)
        if (words in broken) is isinstance(step, Break):
            raise ValueError(f"{' '.join(words)}: {'broken twice' if words in broken else 'nothing to mend'}")
        broken ^= {words}
    elif isinstance(step, Stop):
        broken -= {words for words in broken if words[0] == "engine" and words[2] == step.site}


def _check_text(program: Program, index: int, text: Text) -> None:
    if text.like is None:
        if text.shared or text.follows:
            raise ValueError(f"text {index} shares or follows nothing that it names")
    elif not 0 <= text.like < index:
        raise ValueError(f"text {index} is like one that does not stand before it")
    elif not 0 <= text.shared <= min(text.tokens, program.texts[text.like].tokens):
        raise ValueError(f"text {index} shares more tokens than there are")


def _check_send(program: Program, send: Send, sent: set[Where], site: _Site) -> None:
    what = f"{send.site} {send.name}"
    if send.where in sent:
        raise ValueError(f"{what} is sent twice")
    if not send.texts or not all(0 <= text < len(program.texts) for text in send.texts):
        raise ValueError(f"{what} sends texts that there are not")
    shared = {site.name for site in program.shared}
    for text in (program.texts[index] for index in send.texts):
        if text.follows is None:
            continue
        if text.follows not in sent or text.like not in program.send(text.follows).texts:
            raise ValueError(f"{what} goes on from an answer that is not there")
        if send.site in shared and text.follows[0] not in shared:
            raise ValueError(f"{what} is played before the answer that it goes on from")
    if sum(isinstance(claim, (Cold, Served, Missed)) for claim in send.claims) != 1:
        raise ValueError(f"{what} must claim one of Cold, Served and Missed")
    for claim in send.claims:
        steps = claim.steps if isinstance(claim, Like) else (claim.step,) if hasattr(claim, "step") else None
        if steps is not None and not (steps and sent.issuperset(steps)):
            raise ValueError(f"{what} refers to what was not sent before it")
        if isinstance(claim, Served) and len(claim.hits) not in (0, len(send.texts)):
            raise ValueError(f"{what} claims {len(claim.hits)} hits for {len(send.texts)} texts")
    if not send.external:
        return
    if not program.site(send.site).connector:
        raise ValueError(f"{what} comes from a connector that is not there")
    if not any(isinstance(claim, (Like, Loaded)) for claim in send.claims):
        raise ValueError(f"{what} comes from the connector, and no claim looks at it")
    if not site.overwritten or site.warm & {*send.texts}:
        raise ValueError(f"{what} comes from the connector, and what lay in the blocks was not overwritten before it")
