"""One cell's program, step by step. What it starts and breaks is stopped and mended at its end, whatever happened."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack, suppress
from typing import Generic

from e2e.base.errors import EngineError
from e2e.base.event import Record
from e2e.base.program import (
    Break,
    Empty,
    Forget,
    Mend,
    Scribble,
    Send,
    Site,
    Start,
    Step,
    Stop,
    Together,
)
from e2e.play.world import Engine, P, Scene, Store, World

#: Opens the engine of a site: on the first stack, and the store that it needs on the second one.
Open = Callable[[Scene, Site, ExitStack, ExitStack, dict[str, Store]], Engine]


class Story(Generic[P]):
    """``engines``, ``stores``: those that are lent, by name. ``open``: see ``Player``."""

    def __init__(
        self, scene: Scene[P], world: World[P], record: Record, open: Open,
        *, engines: Mapping[str, Engine], stores: Mapping[str, Store],
    ) -> None:  # fmt: skip
        self.scene, self._world, self._record, self._open = scene, world, record, open
        self.engines, self.stores = dict(engines), dict(stores)
        self._running: dict[str, ExitStack] = {}
        self._broken: dict[tuple[str, str, str], ExitStack] = {}
        self._over = threading.Event()

    def play(self, wanted: Callable[[Step], bool]) -> None:
        """Those steps of the program that are ``wanted``. EngineError of the first that failed, or of the engine that
        it died of."""
        with ExitStack() as own:
            try:
                for index, step in enumerate(self.scene.program.steps):
                    if wanted(step):
                        self._step(index, step, own)
                self._mend(*self._broken)
            except EngineError:
                for site in self._running:
                    self.engines[site].check()
                raise
            finally:
                self._over.set()
                with suppress(EngineError):  # the first error is the one to tell
                    self._mend(*self._broken)

    def _step(self, index: int, step: Step, own: ExitStack) -> None:
        match step:
            case Start(site):
                alone, at = own.enter_context(ExitStack()), self.scene.program.site(site)
                self.engines[site] = self._open(self.scene, at, alone, own, self.stores)
                self._running[site] = alone
            case Forget(site):
                self.engines[site].forget(self.scene, self._upcoming(index, site))
            case Scribble(site):
                self.engines[site].scribble(self.scene, self._upcoming(index, site))
            case Empty(store):
                ok = self._user(store).empty()
                self._record("store.empty", cell=self.scene.cell, store=store, ok=ok)
            case Send():
                self._over.wait(step.after_s)
                with self._looking(step, forgiving=bool(self._broken)):
                    self._act(step, forgiving=bool(self._broken))
            case Together(steps):
                self._together(steps)
            case _:
                self._act(step, forgiving=False)

    def _act(self, step: Send | Stop | Break | Mend, *, forgiving: bool) -> None:
        """What can be done beside other steps."""
        match step:
            case Send(site=site):
                self.engines[site].send(self.scene, step, forgiving=forgiving)
            case Stop(site, killed):
                self.engines[site].end(killed=killed)
                self._mend(*(words for words in self._broken if words[0] == "engine" and words[2] == site))
                self._running.pop(site).close()
            case Break():
                self._break(step)
            case Mend(what, how, target):
                self._mend((what, how, target))

    def _looking(self, send: Send, *, forgiving: bool):
        return self.engines[send.site].looking(self.scene, send, forgiving=forgiving)

    def _together(self, steps: tuple[Send | Break | Mend | Stop, ...]) -> None:
        """Windows are opened before the first step begins and closed after the last has ended. On a signal nobody waits
        for what is on its way: it ends with its engine."""
        forgiving = bool(self._broken) or any(isinstance(step, (Break, Stop)) for step in steps)
        with ExitStack() as looking:
            for step in steps:
                if isinstance(step, Send):
                    looking.enter_context(self._looking(step, forgiving=forgiving))
            threads = ThreadPoolExecutor(max_workers=len(steps), thread_name_prefix="together")
            try:
                futures = [threads.submit(self._later, step, forgiving) for step in steps]
                wait(futures)
            except BaseException:
                self._over.set()
                threads.shutdown(wait=False, cancel_futures=True)
                raise
            threads.shutdown()
            for future in futures:
                future.result()

    def _later(self, step: Send | Break | Mend | Stop, forgiving: bool) -> None:
        if self._over.wait(getattr(step, "after_s", 0.0)):
            return
        self._act(step, forgiving=forgiving)

    def _break(self, step: Break) -> None:
        words = {"what": step.what, "how": step.how, "target": step.target}
        broken = self._broken[tuple(words.values())] = ExitStack()
        self._record("nemesis.begin", cell=self.scene.cell, **words)
        broken.callback(self._record, "nemesis.end", cell=self.scene.cell, **words)
        broken.enter_context(self._world.broken(step, self.engines, self.stores))

    def _mend(self, *broken: tuple[str, str, str]) -> None:
        for words in broken:
            self._broken.pop(words).close()

    def _user(self, store: str) -> Engine:
        """Any running engine that stores there."""
        program = self.scene.program
        running = (site for site in program.sites if site.name in self._running or program.lent(site))
        return next(self.engines[site.name] for site in running if site.connector and site.store == store)

    def _upcoming(self, index: int, site: str) -> str:
        """The next Send on this site: the reset before it is recorded under its name."""
        for step in self.scene.program.steps[index:]:
            for each in step.steps if isinstance(step, Together) else (step,):
                if isinstance(each, Send) and each.site == site:
                    return each.name
        return ""
