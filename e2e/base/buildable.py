"""Which programs can't be built, since nobody could play or judge them. A new rule is a ValueError here and a row of
``e2e/tests/unit/scenarios``."""

from __future__ import annotations

from dataclasses import dataclass, field

from e2e.base.program import (
    Break,
    Cold,
    Empty,
    Forget,
    Like,
    Loaded,
    Mend,
    Missed,
    Program,
    Scribble,
    Send,
    Served,
    Start,
    Step,
    Stop,
    Text,
    Together,
    Where,
)

#: So long a Send may take to go out.
LONGEST_SPREAD_S = 600.0


def check(program: Program) -> None:
    """Names what is meant, once and earlier; every Send says where it comes from; and what comes from the connector is
    held against something, on blocks that can't hold the right bytes by chance."""
    if len({site.name for site in program.sites}) != len(program.sites):
        raise ValueError("two sites of one name")
    for site in program.sites:
        if any(other.pool != site.pool for other in program.sites if other.connector and other.store == site.store):
            raise ValueError(f"{site.name} says of its store that it has another size")
        if (site.pool and site.pool.tokens < 1) or (site.kv_tokens is not None and site.kv_tokens < 1):
            raise ValueError(f"{site.name} has no room at all")
        if site.step is not None and site.step < 1:
            raise ValueError(f"{site.name} takes steps of no tokens")
    if any(seed < 0 for seed in (*(site.weights for site in program.sites), *(send.lora for send in program.sends))):
        raise ValueError("a seed is a whole number from 0 on")
    for index, text in enumerate(program.texts):
        _check_text(program, index, text)
    for step in program.steps:
        if isinstance(step, Together):
            _check_together(program, step)
    so_far = _SoFar(program)
    for step in program.flat:
        so_far.take(step)


def _check_text(program: Program, index: int, text: Text) -> None:
    if text.like is None:
        if text.shared or text.follows:
            raise ValueError(f"text {index} shares or follows nothing that it names")
    elif not 0 <= text.like < index:
        raise ValueError(f"text {index} is like one that does not stand before it")
    elif not 0 <= text.shared <= min(text.tokens, program.texts[text.like].tokens):
        raise ValueError(f"text {index} shares more tokens than there are")
    if text.body is None:
        return
    if text.follows or not 0 <= text.body < index or program.texts[text.body].tokens < text.tokens:
        raise ValueError(f"text {index} has a body that does not reach to its end")


def _check_together(program: Program, together: Together) -> None:
    sends = [step for step in together.steps if isinstance(step, Send)]
    if len({send.site for send in sends}) != len(sends):
        raise ValueError("a site is sent two things at once; make them one Send, with at_once")
    if {send.site for send in sends} & {site.name for site in program.shared}:
        raise ValueError("what a lent plain engine is sent is played beforehand, and beside nothing")
    answers = {send.where for send in sends}
    texts = (program.texts[text] for send in sends for text in send.texts if 0 <= text < len(program.texts))
    if any(text.follows in answers for text in texts):
        raise ValueError("an answer is followed while it is given")


@dataclass
class _Engine:
    """``warm``: texts whose KV its own prefix cache may still hold. ``overwritten``: its free blocks hold nothing that
    was computed or loaded."""

    running: bool = False
    overwritten: bool = False
    warm: set[int] = field(default_factory=set)


class _SoFar:
    """What is so before the next step."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.engines = {site.name: _Engine(running=program.lent(site)) for site in program.sites}
        self.sent: set[Where] = set()
        #: what is broken, by its words; an engine that is killed stays so until it is stopped
        self.broken: set[tuple[str, str, str]] = set()

    def take(self, step: Step) -> None:
        if isinstance(step, (Break, Mend)):
            self._nemesis(step)
        elif isinstance(step, Empty):
            self._empty(step)
        elif isinstance(step, Start):
            self._engine(step.site, running=False)
            self.engines[step.site] = _Engine(running=True, overwritten=True)
        elif isinstance(step, Stop):
            self._own(step.site)
            self.engines[step.site] = _Engine()
            self.broken -= {words for words in self.broken if words[0] == "engine" and words[2] == step.site}
        elif isinstance(step, Forget):
            self._engine(step.site)
            self.engines[step.site] = _Engine(running=True)
        elif isinstance(step, Scribble):
            engine = self._engine(step.site)
            engine.overwritten = not engine.warm
        elif isinstance(step, Send):
            self._send(step)

    def _engine(self, site: str, *, running: bool = True) -> _Engine:
        engine = self.engines.get(site)
        if engine is None:
            raise ValueError(f"there is no site {site}")
        if engine.running is not running:
            raise ValueError(f"{site} does not run" if running else f"{site} is started twice")
        return engine

    def _own(self, site: str) -> None:
        self._engine(site)
        if self.program.lent(self.program.site(site)):
            raise ValueError(f"{site} is lent: only who starts it may end it")

    def _nemesis(self, step: Break | Mend) -> None:
        words = (step.what, step.how, step.target)
        if (words in self.broken) is isinstance(step, Break):
            raise ValueError(f"{' '.join(words)}: {'broken twice' if words in self.broken else 'nothing to mend'}")
        if step.what == "engine":
            self._own(step.target)
        if step.what in ("object", "space") and step.target not in {site.store for site in self.program.sites}:
            raise ValueError(f"there is no store {step.target}")
        if isinstance(step, Break) and not 0 <= step.after_s <= LONGEST_SPREAD_S:
            raise ValueError(f"{' '.join(words)} comes after 0 to {LONGEST_SPREAD_S:g} seconds")
        self.broken ^= {words}

    def _empty(self, step: Empty) -> None:
        users = (site.name for site in self.program.sites if site.connector and site.store == step.store)
        if not any(self.engines[user].running for user in users):
            raise ValueError(f"nobody runs who could empty {step.store}")

    def _send(self, send: Send) -> None:
        engine, what = self._engine(send.site), " ".join(send.where)
        if send.where in self.sent:
            raise ValueError(f"{what} is sent twice")
        if send.at_once < 1 or (send.answer is not None and send.answer < 1):
            raise ValueError(f"{what} must send at least one request at a time, and ask for at least one token")
        if not 0 <= send.spread_s <= LONGEST_SPREAD_S:
            raise ValueError(f"{what} spreads its requests over 0 to {LONGEST_SPREAD_S:g} seconds")
        if not send.texts or not all(0 <= text < len(self.program.texts) for text in send.texts):
            raise ValueError(f"{what} sends texts that there are not")
        self._answers(send, what)
        self._claims(send, what)
        if send.external:
            self._external(send, engine, what)
        self.sent.add(send.where)
        engine.warm |= {*send.texts}

    def _answers(self, send: Send, what: str) -> None:
        shared = {site.name for site in self.program.shared}
        for text in (self.program.texts[index] for index in send.texts):
            if text.follows is None:
                continue
            if text.follows not in self.sent or text.like not in self.program.send(text.follows).texts:
                raise ValueError(f"{what} goes on from an answer that is not there")
            if send.site in shared and text.follows[0] not in shared:
                raise ValueError(f"{what} is played before the answer that it goes on from")

    def _claims(self, send: Send, what: str) -> None:
        if sum(isinstance(claim, (Cold, Served, Missed)) for claim in send.claims) != 1:
            raise ValueError(f"{what} must claim one of Cold, Served and Missed")
        for claim in send.claims:
            steps = claim.steps if isinstance(claim, Like) else (claim.step,) if hasattr(claim, "step") else None
            if steps is not None and not (steps and self.sent.issuperset(steps)):
                raise ValueError(f"{what} refers to what was not sent before it")
            if steps and any(self._identity(where) != self.program.identity(send) for where in steps):
                raise ValueError(f"{what} is held against what other weights or another adapter said")
            if isinstance(claim, Served) and len(claim.hits) not in (0, len(send.texts)):
                raise ValueError(f"{what} claims {len(claim.hits)} hits for {len(send.texts)} texts")

    def _identity(self, where: Where) -> tuple[int, int]:
        return self.program.identity(self.program.send(where))

    def _external(self, send: Send, engine: _Engine, what: str) -> None:
        if not self.program.site(send.site).connector:
            raise ValueError(f"{what} comes from a connector that is not there")
        if not any(isinstance(claim, (Like, Loaded)) for claim in send.claims):
            raise ValueError(f"{what} comes from the connector, and no claim looks at it")
        in_use = self.program.site(send.site).in_use  # where nobody may overwrite anything
        if not in_use and (not engine.overwritten or engine.warm & {*send.texts}):
            raise ValueError(f"{what} comes from the connector, and what lay in the blocks was not overwritten first")
