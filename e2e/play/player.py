"""The one loop that plays programs: which engine runs when, and what still goes on when something failed.

What lent plain engines are sent is played first, once for all cells of an engine key, and on one engine for all keys
whose plain engines differ in nothing. Then come the cells of a key, one after the other, on the engines that it is
lent, as long as those live. Engines that a program starts are its own and end with its cell.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Generic

from e2e.base.errors import EngineAnswer, EngineCrashed, EngineError
from e2e.base.event import Event, engine_failed
from e2e.base.program import Site
from e2e.play.story import Story
from e2e.play.world import Engine, P, Scene, Store, World
from e2e.report.progress import Progress
from e2e.standing import Standing


@dataclass(frozen=True)
class After:
    """What is done on the lent engines once the cells have been played. ``play`` gets them by site."""

    name: str
    play: Callable[[Mapping[str, Engine]], None]


@dataclass
class Player(Generic[P]):
    """``attempt``: of the run. ``say``: to whoever looks on. ``doing``: what getting an engine is called. ``started``:
    engines so far, for their names."""

    world: World[P]
    standing: Standing
    progress: Progress
    attempt: int
    say: Callable[[str], None]
    doing: str = "starting"
    started: int = 0
    given_up: set[str] = field(default_factory=set)
    _naming: threading.Lock = field(default_factory=threading.Lock)

    def record(self, kind: str, **data: object) -> Event:
        return self.standing.record(kind, **data)

    def halt(self) -> None:
        """Whoever plays beside us goes on no more, and waits for no engine."""
        self.standing.halt()
        self.world.end()

    def play(self, parts: Sequence[P]) -> None:
        """All of ``parts``, which share their plain engines; one that fails ends its own cells only."""
        for part in self.plain(parts):
            self.cells(part)

    # lent plain engines

    def plain(self, parts: Sequence[P]) -> list[P]:
        """What is sent to lent plain engines; returns the parts for which that ended."""
        left = list(parts)
        for site in parts[0].program.shared if parts else ():
            left = self._on_plain(site, left)
        return left

    def _on_plain(self, site: Site, parts: list[P]) -> list[P]:
        todo, ended = list(parts), []
        while todo:
            try:
                with self._lent(todo[0], [site]) as (engines, _):
                    self._plain_steps(todo[0], site, engines[site.name])
                    ended.append(todo.pop(0))
                    while todo:
                        self._shared_steps(todo[0], site, engines[site.name])
                        ended.append(todo.pop(0))
            except EngineError as error:
                self._give_up(todo.pop(0), error)
        return ended

    def _shared_steps(self, part: P, site: Site, engine: Engine) -> None:
        """The engine's own failure stands under its own name."""
        name = self._name(part, site)
        shared = self.world.shared(Scene(part, part.program), site, name, engine)
        try:
            self._plain_steps(part, site, shared)
        except EngineError as error:
            engine_failed(self.record, name, "run", error)
            raise

    def _plain_steps(self, part: P, site: Site, engine: Engine) -> None:
        place = {"engine": engine.name, "engine_key": part.key, "attempt": self.attempt}
        story = self._story(Scene(part, part.program), {site.name: engine}, {})
        with self.progress.step("baseline", f"replaying on the {site.name} engine {part.key}"):
            self.record("baseline.begin", **place)
            story.play(lambda step: getattr(step, "site", None) == site.name)
            self.record("baseline.end", **place)

    # cells

    def cells(
        self, part: P, cells: Sequence[str] | None = None, after: Sequence[After] = (),
        *, ready: Callable[[], bool] = lambda: True,
    ) -> bool:  # fmt: skip
        """Cells of one part, by default all, then what comes ``after``, on lent engines as long as those live. False
        when the part was given up. ``ready``: may they begin? Asked once their engines stand."""
        todo, then = list(part.programs if cells is None else cells), list(after)
        sites = [site for site in part.program.sites if site.connector and part.program.lent(site)]
        try:
            while todo or then:
                with self._lent(part, sites) as (engines, stores):
                    if not (usable := ready()):
                        break
                    while todo and usable:
                        usable = self._cell(part, todo.pop(0), engines, stores)
                    while then and usable:
                        self._after(then.pop(0), engines)
        except EngineError as error:
            self._give_up(part, error)
        return part.key not in self.given_up

    def _cell(self, part: P, cell: str, engines: Mapping[str, Engine], stores: Mapping[str, Store]) -> bool:
        """False: the lent engines are of no more use, and what is left needs others."""
        with self.progress.step("cell", f"replaying {cell}"):
            usable = self._told(Scene(part, part.programs[cell], cell), engines, stores)
        self._judge([cell])
        return usable

    def _told(self, scene: Scene[P], engines: Mapping[str, Engine], stores: Mapping[str, Store]) -> bool:
        lent, shared = list(engines.values()), {site.name for site in scene.program.shared}
        place = {"cell": scene.cell, "engine": lent[0].name if lent else None, "attempt": self.attempt}
        self.record("cell.begin", **place)
        try:
            self._story(scene, engines, stores).play(lambda step: getattr(step, "site", None) not in shared)
        except EngineError as error:
            self.say(f"{scene.cell}: {error}")
            if not error.recorded:
                self.record("note", text=f"{scene.cell}: {error}")
            if not all(map(self._serves, lent)) or not isinstance(error, EngineAnswer):
                return False
        self.record("cell.end", **place)
        try:
            for engine in lent:
                engine.tidy()
        except EngineError as error:
            self.say(f"after {scene.cell}: {error}")
            return False
        return True

    def _serves(self, engine: Engine) -> bool:
        try:
            engine.check()
        except EngineCrashed as crash:
            self.say(str(crash))
            return False
        return True

    def _after(self, after: After, engines: Mapping[str, Engine]) -> None:
        with self.progress.step("branch", f"measuring {after.name}"):
            after.play(engines)
        self.progress.counted("measured", after.name)
        for engine in engines.values():
            engine.tidy()

    # engines

    def _story(self, scene: Scene[P], engines: Mapping[str, Engine], stores: Mapping[str, Store]) -> Story[P]:
        return Story(scene, self.world, self.record, self._open, engines=engines, stores=stores)

    @contextmanager
    def _lent(self, part: P, sites: Sequence[Site]) -> Iterator[tuple[dict[str, Engine], dict[str, Store]]]:
        """Ready engines of these sites, with their stores."""
        scene, stores = Scene(part, part.program), {}
        with ExitStack() as stack:
            engines = {site.name: self._open(scene, site, stack, stack, stores) for site in sites}
            try:
                yield engines, stores
            except EngineError:
                for engine in engines.values():
                    engine.check()  # if it died of it, that is the error
                raise

    def _open(
        self, scene: Scene[P], site: Site, own: ExitStack, lasting: ExitStack, stores: dict[str, Store]
    ) -> Engine:  # fmt: skip
        """The engine ends with the stack ``own``, the store with ``lasting``; it has the name of its first engine."""
        name = self._name(scene.part, site)
        with self.progress.step("start", f"{self.doing} {site.name} engine {scene.part.key}"):
            if site.store and site.store not in stores:
                stores[site.store] = lasting.enter_context(self.world.store(scene.part, name))
            return own.enter_context(self.world.engine(scene, site, name, stores.get(site.store or "")))

    def _name(self, part: P, site: Site) -> str:
        with self._naming:
            self.started += 1
            return f"{part.key}.{site.name}.{self.attempt}.{self.started}"

    # verdicts

    def _give_up(self, part: P, error: EngineError) -> None:
        self.given_up.add(part.key)
        self.say(f"{part.key}: {error}")
        self.judge_rest(part)

    def judge_rest(self, part: P) -> None:
        """Those of its cells that were not."""
        self._judge(cell for cell in part.programs if not self.standing.knows(cell))

    def _judge(self, cells: Iterable[str]) -> None:
        for cell in cells:
            self.progress.judged(self.standing.judged(cell))
