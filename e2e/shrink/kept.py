"""A world whose engines outlive a cell: the next one that needs such an engine gets it, with its store."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import Generic

from e2e.base.errors import EngineError
from e2e.base.program import Break, Program, Site, Start, Stop
from e2e.play.world import Engine, P, Scene, Store, World
from e2e.stack.spec import EngineSpec

#: What engine a site of a part needs.
SpecOf = Callable[[P, Site], EngineSpec]


@dataclass
class _Kept:
    engine: Engine
    spec: EngineSpec
    own: ExitStack


@dataclass
class _LaterStore(Generic[P]):
    """Opened when an engine needs it: a kept one has its own. ``own``: ends with whoever asked for it."""

    open: Callable[[], AbstractContextManager[Store | None]]
    own: ExitStack
    real: list[Store | None] = field(default_factory=list)

    def opened(self) -> Store | None:
        if not self.real:
            self.real.append(self.own.enter_context(self.open()))
        return self.real[0]


class Keeping(Generic[P]):
    """See ``world.World``. As a context manager; whatever is kept ends with it. ``starts``: engines that were really
    started."""

    def __init__(self, world: World[P], spec_of: SpecOf[P]) -> None:
        self.world, self._spec_of = world, spec_of
        self.starts = 0
        self._kept: list[_Kept] = []

    def __enter__(self) -> Keeping[P]:
        return self

    def __exit__(self, *error: object) -> None:
        self.drop()

    def __getattr__(self, name: str) -> object:
        return getattr(self.world, name)

    def drop(self) -> None:
        """What is kept ends, so that the next cell gets fresh engines."""
        while self._kept:
            self._kept.pop().own.close()

    def missing(self, part: P, *, fresh: bool) -> int:
        """Starts that its program needs, on top of what is kept."""
        program, sites = part.program, started(part.program)
        return sum(fresh or not keepable(program, site) or self._found(part, site) is None for site in sites)

    # a world

    @contextmanager
    def store(self, part: P, name: str) -> Iterator[_LaterStore[P]]:
        with ExitStack() as own:
            yield _LaterStore(lambda: self.world.store(part, name), own)

    @contextmanager
    def engine(self, scene: Scene[P], site: Site, name: str, store: _LaterStore[P] | None) -> Iterator[Engine]:
        if not keepable(scene.program, site):
            self.starts += 1
            real = store.opened() if store else None
            with self.world.engine(scene, site, name, real) as engine:
                yield engine
            return
        kept = self._found(scene.part, site)
        if kept is None:
            kept = self._open(scene, site, name)
            engine = kept.engine
        else:
            engine = self.world.shared(scene, site, name, kept.engine)
        try:
            yield engine
        except BaseException:
            self._end(kept)
            raise
        try:
            engine.tidy()
        except EngineError:
            self._end(kept)

    def _end(self, kept: _Kept) -> None:
        if kept in self._kept:
            self._kept.remove(kept)
            kept.own.close()

    def shared(self, scene: Scene[P], site: Site, name: str, engine: Engine) -> Engine:
        return self.world.shared(scene, site, name, engine)

    def broken(
        self, step: Break, engines: Mapping[str, Engine], stores: Mapping[str, _LaterStore[P]]
    ) -> AbstractContextManager[object]:
        return self.world.broken(step, engines, {name: store.opened() for name, store in stores.items()})

    def _open(self, scene: Scene[P], site: Site, name: str) -> _Kept:
        self.starts += 1
        own = ExitStack()
        try:
            store = own.enter_context(self.world.store(scene.part, name)) if site.store else None
            engine = own.enter_context(self.world.engine(scene, site, name, store))
        except BaseException:
            own.close()
            raise
        kept = _Kept(engine, self._spec_of(scene.part, site), own)
        self._kept.append(kept)
        return kept

    def _found(self, part: P, site: Site) -> _Kept | None:
        wanted = self._spec_of(part, site)
        return next((kept for kept in self._kept if serves(kept.spec, wanted, exactly=bool(site.kv_tokens))), None)


def started(program: Program) -> list[Site]:
    """Sites as often as an engine is started for them."""
    own = [program.site(step.site) for step in program.flat if isinstance(step, Start)]
    return [*own, *(site for site in program.sites if program.lent(site))]


def keepable(program: Program, site: Site) -> bool:
    """Is the engine, after it, what it was before? Not where it was ended for good or for others, or something was
    broken; nor where its store is somebody else's, too."""
    steps = list(program.flat)
    ends = [step for step in steps if isinstance(step, Stop) and step.site == site.name]
    begins = [step for step in steps if isinstance(step, Start) and step.site == site.name]
    if any(isinstance(step, Break) for step in steps) or any(stop.killed for stop in ends):
        return False
    if not site.connector:
        return True
    alone = not any(other.connector and other.store == site.store for other in program.sites if other != site)
    return alone and len(begins) <= 1


def serves(kept: EngineSpec, wanted: EngineSpec, *, exactly: bool) -> bool:
    """Is it such an engine? ``exactly``: its room counts; else it may have more."""
    if exactly and kept.kv_cache_memory_bytes != wanted.kv_cache_memory_bytes:
        return False
    room = {name: getattr(kept, name) for name in ("kv_cache_memory_bytes", "max_model_len")}
    if any((have or 0) < (getattr(wanted, name) or 0) for name, have in room.items()):
        return False
    names = {"name": kept.name, "engine_key": kept.engine_key, "cell": kept.cell}
    return replace(wanted, **room, **names) == kept
