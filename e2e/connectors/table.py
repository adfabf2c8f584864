"""The table of adapters, loaded by name when asked for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from importlib import import_module

from e2e.base.connector import Adapter
from e2e.base.errors import SettingsError
from e2e.base.spelling import meant
from e2e.connectors.generic import load_generic

#: name on the command line -> module:class of its adapter
ADAPTERS: Mapping[str, str] = {
    "embedded": "e2e.connectors.embedded:Embedded",
    "example": "e2e.connectors.example:Example",
    "decode-bench": "e2e.connectors.decode_bench:DecodeBench",
    "maru": "e2e.connectors.maru:Maru",
    "lmcache": "e2e.connectors.lmcache:LMCache",
    "lmcache-mp": "e2e.connectors.lmcache:LMCacheServer",
    "offloading": "e2e.connectors.offloading:Offloading",
}


def load(name: str, *, pool_bytes: int | None = None, server: str | None = None) -> Adapter:
    """The adapter of a name of the table or of a FILE.toml. Raises SettingsError for anything else.

    ``pool_bytes``: the size of the connector's pool; refused for a connector that has none of its own. ``server``:
    host:port of a server that the connector is to use; connectors that use none don't care.
    """
    adapter = load_generic(name) if name.endswith(".toml") else _from_table(name)
    if server is not None and hasattr(adapter, "server"):
        adapter = replace(adapter, server=server)  # type: ignore[type-var]
    if pool_bytes is None:
        return adapter
    if not hasattr(adapter, "pool_bytes"):
        raise SettingsError(f"connector {adapter.name} has no pool of its own; leave out --pool-size.")
    return replace(adapter, pool_bytes=pool_bytes)  # type: ignore[type-var]


def _from_table(name: str) -> Adapter:
    if name not in ADAPTERS:
        close = meant(name, ADAPTERS)
        hint = f"did you mean {close}? " if close else ""
        raise SettingsError(f"connector {name!r} is unknown; {hint}Use {', '.join(ADAPTERS)} or a FILE.toml.")
    module, _, attribute = ADAPTERS[name].partition(":")
    return getattr(import_module(module), attribute)()
