"""What the player plays against: engines and stores, real ones (``live.py``) or a test's."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from e2e.base.program import Break, Program, Send, Site


class Part(Protocol):
    """One engine key: its cells share the engines that no step starts. ``programs``: cell's id -> what it does, with
    the same sites and texts in each; ``program``: that of any. ``engines``: that its cells have at once, at most."""

    @property
    def key(self) -> str: ...

    @property
    def programs(self) -> Mapping[str, Program]: ...

    @property
    def program(self) -> Program: ...

    @property
    def engines(self) -> int: ...


P = TypeVar("P", bound=Part)


@dataclass(frozen=True)
class Scene(Generic[P]):
    """Where a step is played. ``cell`` None: on engines that are lent, for all cells of the part."""

    part: P
    program: Program
    cell: str | None = None


class Store(Protocol):
    """A pool with its servers. It ends when whoever opened it leaves."""


class Engine(Protocol):
    """A ready engine with what looks at it; ``name``: under which it is recorded. What it does it records, before and
    after. Everything but ``end`` raises EngineError."""

    name: str

    def looking(self, scene: Scene, send: Send, *, forgiving: bool) -> AbstractContextManager[object]:
        """Around ``send``: counters, evidence and digests. ``forgiving``: something was broken on purpose, so what
        can't be read is no error."""

    def send(self, scene: Scene, send: Send, *, forgiving: bool) -> None:
        """Sends the texts and keeps the answers. ``forgiving``: so requests may fail."""

    def forget(self, scene: Scene, before: str) -> None:
        """Empties vLLM's own prefix cache, ``before`` the Send of that name."""

    def scribble(self, scene: Scene, before: str) -> None:
        """Writes random values over all blocks, unless the last ``forget`` was refused."""

    def empty(self) -> bool | None:
        """Its store forgets all that it holds. None when nobody tells whether it did."""

    def tidy(self) -> None:
        """After a cell: a pool of our own need not hold more than one. Never somebody else's store."""

    def check(self) -> None:
        """Raises EngineCrashed when it, or a server of its store, has ended or is mute, unless it was broken here."""

    def end(self, *, killed: bool, amid: str = "") -> None:
        """It is about to end on purpose, so that its end is no failure; ``killed``: now, by SIGKILL, or once its
        connector is ``amid`` a load or a store."""


class World(Protocol[P]):
    """Engines and stores to be had; whatever was entered ends when it is left. Several threads may share it."""

    def end(self) -> None:
        """Kills all that runs, so that nobody waits for it."""

    def store(self, part: P, name: str) -> AbstractContextManager[Store | None]: ...

    def engine(self, scene: Scene[P], site: Site, name: str, store: Store | None) -> AbstractContextManager[Engine]:
        """Ready when entered."""

    def shared(self, scene: Scene[P], site: Site, name: str, engine: Engine) -> Engine:
        """The engine under a name of another part, to which what it answers from now on belongs."""

    def broken(
        self, step: Break, engines: Mapping[str, Engine], stores: Mapping[str, Store]
    ) -> AbstractContextManager[object]:
        """Breaks it when entered, mends it when left. ``engines``: by site."""
