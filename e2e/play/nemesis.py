"""What can be broken and mended, by the words of a ``Break``. A new way is a function here and a line in ``WAYS``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager

from e2e.base.errors import SettingsError
from e2e.base.program import Break, Program
from e2e.base.spelling import either
from e2e.play.world import Engine
from e2e.stack.store import Store

Engines, Stores = Mapping[str, Engine], Mapping[str, Store]
Way = Callable[[str, Engines, Stores], AbstractContextManager[None]]


@contextmanager
def engine_killed(target: str, engines: Engines, stores: Stores) -> Iterator[None]:
    """Nothing mends it but Stop and Start."""
    engines[target].end(killed=True)
    yield


def engine_killed_amid(work: str) -> Way:
    """As soon as its connector is at it. When it never is, it is killed later, and no such work was cut short."""

    @contextmanager
    def way(target: str, engines: Engines, stores: Stores) -> Iterator[None]:
        engines[target].end(killed=True, amid=work)
        yield

    return way


@contextmanager
def server_killed(target: str, engines: Engines, stores: Stores) -> Iterator[None]:
    """Its port refuses; mended it runs again on the same pool, with whatever it keeps of its own."""
    store, server = _with_server(target, stores)
    store.kill(server)
    yield
    store.restart(server)
    store.found_again(server)


@contextmanager
def server_restarted(target: str, engines: Engines, stores: Stores) -> Iterator[None]:
    """Killed and there again, on the same pool, before anybody may have asked."""
    store, server = _with_server(target, stores)
    store.kill(server)
    store.restart(server)
    yield
    store.found_again(server)


@contextmanager
def server_suspended(target: str, engines: Engines, stores: Stores) -> Iterator[None]:
    """It takes connections and answers nothing."""
    store, server = _with_server(target, stores)
    store.suspend(server)
    try:
        yield
    finally:
        store.resume(server)
        store.found_again(server)


@contextmanager
def server_slow(target: str, engines: Engines, stores: Stores) -> Iterator[None]:
    """It answers, and late."""
    store, server = _with_server(target, stores)
    store.slow(server)
    try:
        yield
    finally:
        store.hurry(server)


@contextmanager
def space_filled(target: str, engines: Engines, stores: Stores) -> Iterator[None]:
    """What the store may still take is taken: its own room, never the machine's."""
    store = _named(target, stores)
    store.fill()
    try:
        yield
    finally:
        store.drain()


def objects_damaged(how: str) -> Way:
    """Strikes all that the store holds by now; nothing mends it but storing anew."""

    @contextmanager
    def way(target: str, engines: Engines, stores: Stores) -> Iterator[None]:
        store = _named(target, stores)
        store.damage(how, *store.objects())
        yield

    return way


#: (what, how) -> way; ``target`` is a site, a server or, for objects and space, a store
WAYS: Mapping[tuple[str, str], Way] = {
    ("engine", "kill"): engine_killed,
    **{("engine", f"kill_amid_{work}"): engine_killed_amid(work) for work in ("load", "store")},
    ("server", "kill"): server_killed,
    ("server", "restart"): server_restarted,
    ("server", "suspend"): server_suspended,
    ("server", "slow"): server_slow,
    ("space", "fill"): space_filled,
    **{("object", how): objects_damaged(how) for how in ("delete", "lose", "flip", "tear", "truncate", "replace")},
}


def broken(step: Break, engines: Engines, stores: Stores) -> AbstractContextManager[None]:
    """Broken when entered, mended when left. SettingsError for words that nobody knows."""
    return _way(step)(step.target, engines, stores)


def known(program: Program) -> None:
    """SettingsError for a program with a Break of such words."""
    for step in program.flat:
        if isinstance(step, Break):
            _way(step)


def _way(step: Break) -> Way:
    if (step.what, step.how) not in WAYS:
        words = [how for what, how in WAYS if what == step.what] or sorted({what for what, _ in WAYS})
        raise SettingsError(f"nobody knows how to {step.how} the {step.what} {step.target}; use {either(words)}.")
    return WAYS[step.what, step.how]


def _with_server(target: str, stores: Stores) -> tuple[Store, str]:
    """``target``: a server, or store/server where there are several that have one."""
    name, _, server = target.rpartition("/")
    found = (store for of, store in stores.items() if name in ("", of) and server in store.addresses)
    if (store := next(found, None)) is None:
        raise SettingsError(f"no store has a server {target} that could be broken; choose a connector that has one.")
    return store, server


def _named(store: str, stores: Stores) -> Store:
    if store not in stores:
        raise SettingsError(f"the program has no store {store} that could be damaged or filled.")
    return stores[store]
