"""What can be broken and mended, by the words of a ``Break``. A new way is a function here and a line in ``WAYS``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager

from e2e.base.errors import SettingsError
from e2e.base.program import Break, Program
from e2e.play.world import Engine
from e2e.stack.store import Store

Engines, Stores = Mapping[str, Engine], Mapping[str, Store]


@contextmanager
def engine_killed(target: str, engines: Engines, stores: Stores) -> Iterator[None]:
    """Nothing mends it but Stop and Start."""
    engines[target].end(killed=True)
    yield


@contextmanager
def server_killed(target: str, engines: Engines, stores: Stores) -> Iterator[None]:
    """Its port refuses; mended it runs again on the same pool, with whatever it keeps of its own."""
    store = _with_server(target, stores)
    store.kill(target)
    yield
    store.restart(target)


@contextmanager
def server_suspended(target: str, engines: Engines, stores: Stores) -> Iterator[None]:
    """It takes connections and answers nothing."""
    store = _with_server(target, stores)
    store.suspend(target)
    try:
        yield
    finally:
        store.resume(target)


def objects_damaged(how: str) -> Callable[[str, Engines, Stores], AbstractContextManager[None]]:
    """Strikes all that the store holds by now; nothing mends it but storing anew."""

    @contextmanager
    def way(target: str, engines: Engines, stores: Stores) -> Iterator[None]:
        if target not in stores:
            raise SettingsError(f"the program has no store {target} whose objects could be damaged.")
        stores[target].damage(how, *stores[target].objects())
        yield

    return way


#: (what, how) -> way; ``target`` is a site, a server or, for objects, a store
WAYS: Mapping[tuple[str, str], Callable[[str, Engines, Stores], AbstractContextManager[None]]] = {
    ("engine", "kill"): engine_killed,
    ("server", "kill"): server_killed,
    ("server", "suspend"): server_suspended,
    **{("object", how): objects_damaged(how) for how in ("delete", "flip", "tear", "truncate", "replace")},
}


def broken(step: Break, engines: Engines, stores: Stores) -> AbstractContextManager[None]:
    """Broken when entered, mended when left. SettingsError for words that nobody knows."""
    return _way(step)(step.target, engines, stores)


def known(program: Program) -> None:
    """SettingsError for a program with a Break of such words."""
    for step in program.flat:
        if isinstance(step, Break):
            _way(step)


def _way(step: Break) -> Callable[[str, Engines, Stores], AbstractContextManager[None]]:
    if (step.what, step.how) not in WAYS:
        raise SettingsError(f"nobody knows how to {step.how} the {step.what} {step.target}; see e2e/play/nemesis.py.")
    return WAYS[step.what, step.how]


def _with_server(server: str, stores: Stores) -> Store:
    found = next((store for store in stores.values() if server in store.addresses), None)
    if found is None:
        raise SettingsError(f"no store has a server {server} that could be broken; choose a connector that has one.")
    return found
