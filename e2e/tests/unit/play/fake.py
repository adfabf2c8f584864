"""A world without engines, and programs to play in it."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field

from e2e.base.program import Cold, Forget, Like, Loaded, Program, Scribble, Send, Served, Site, Start, Step, Stop, Text


@dataclass
class FakeWorld:
    """``did``: all that was asked of it, in order. ``running``: what was started and not stopped. ``fails``: what is
    asked -> the error that it raises, once; ``fails_at``: the same by its number."""

    record: object
    fails: dict = field(default_factory=dict)
    fails_at: dict = field(default_factory=dict)
    did: list = field(default_factory=list)
    running: list = field(default_factory=list)
    attempt: int = 1

    def do(self, *what):
        self.did.append(what)
        if error := self.fails.pop(what, None) or self.fails_at.pop(len(self.did), None):
            raise error

    @contextmanager
    def _open(self, thing, *what):
        self.do("start", *what)
        self.running.append(what)
        try:
            yield thing
        finally:
            self.running.remove(what)
            self.did.append(("stop", *what))

    def store(self, part, name):
        return self._open(name, "store", name)

    @contextmanager
    def engine(self, scene, site, name, store):
        with self._open(FakeEngine(name, self), name):
            about = {"cell": scene.cell} if scene.cell else {}
            self.record(
                "engine.start", engine=name, engine_key=scene.part.key, role=site.name, attempt=self.attempt, argv=[],
                launcher="none", log="", **about,
            )  # fmt: skip
            yield FakeEngine(name, self)

    def shared(self, scene, site, name, engine):
        self.record(
            "engine.start", engine=name, engine_key=scene.part.key, role=site.name, attempt=self.attempt, argv=[],
            launcher=f"shared: {engine.name}", log="", **({"cell": scene.cell} if scene.cell else {}),
        )  # fmt: skip
        return FakeEngine(name, self)

    def broken(self, step, engines, stores):
        return self._open(None, "broken", step.what, step.how, step.target)


@dataclass
class FakeEngine:
    name: str
    world: FakeWorld

    def looking(self, scene, send, *, forgiving):
        return nullcontext()

    def send(self, scene, send, *, forgiving):
        self.world.do("send", scene.cell or scene.part.key, send.name)

    def forget(self, scene, before):
        self.world.do("forget", scene.cell, before)

    def scribble(self, scene, before):
        self.world.do("scribble", scene.cell, before)

    def empty(self):
        self.world.do("empty", self.name)
        return True

    def tidy(self):
        self.world.do("tidy", self.name)

    def check(self):
        self.world.do("check", self.name)

    def end(self, *, killed, amid=""):
        self.world.do("kill" if killed else "end", self.name)


@dataclass(frozen=True)
class Key:
    """A part that is no more than that."""

    key: str
    programs: Mapping[str, Program]

    @property
    def program(self) -> Program:
        return next(iter(self.programs.values()))


ONE, PLAIN = Site("one"), Site("plain", connector=False, store=None)
TEXTS = (Text(100), Text(200))


def send(name: str, site: Site, *claims, **how) -> Send:
    return Send(name, site.name, (0, 1), claims or (Cold(),), **how)


def again(site: Site, like: Send) -> tuple[Step, ...]:
    """A rerun from the connector."""
    looked = send("again", site, Served(True), Loaded(like.where), Like((like.where,)))
    return Forget(site.name), Scribble(site.name), looked


def lent() -> Program:
    """Both sites are lent, as in the rerun."""
    alone, cold = send("alone", PLAIN), send("cold", ONE)
    return Program((PLAIN, ONE), TEXTS, (alone, cold, *again(ONE, cold)), "lent")


def own(*between: Step, more: tuple[Site, ...] = ()) -> Program:
    """Starts and stops all that it needs."""
    alone, cold = send("alone", PLAIN), send("cold", ONE)
    steps = (
        Start("plain"), alone, Stop("plain"), Start("one"), cold, *between, *again(ONE, cold), Stop("one", killed=True)
    )  # fmt: skip
    return Program((PLAIN, ONE, *more), TEXTS, steps, "own")
