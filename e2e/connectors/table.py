"""The table of adapters, loaded by name when asked for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import partial
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


def load(name: str, *, pool_bytes: int | None = None, server: str | None = None, python: str = "") -> Adapter:
    """The adapter of a name of the table or of a FILE.toml. Raises SettingsError for anything else.

    ``pool_bytes``: the size of the connector's pool; refused for a connector that has none of its own. ``server``:
    host:port of a server that the connector is to use; connectors that use none don't care. ``python``: the
    engine's interpreter, for those that ask what it has installed; this one by default.
    """
    if name.endswith(".toml"):
        made = partial(load_generic, name)
        takes: set[str] = set()
    else:
        made = _from_table(name)
        takes = {field.name for field in fields(made)} if is_dataclass(made) else set()
    if pool_bytes is not None and "pool_bytes" not in takes:
        raise SettingsError(f"connector {name} has no pool of its own; leave out --pool-size.")
    given = {"pool_bytes": pool_bytes, "server": server, "python": python or None}
    return made(**{key: value for key, value in given.items() if key in takes and value is not None})


def _from_table(name: str) -> type[Adapter]:
    if name not in ADAPTERS:
        close = meant(name, ADAPTERS)
        hint = f"did you mean {close}? " if close else ""
        raise SettingsError(f"connector {name!r} is unknown; {hint}Use {', '.join(ADAPTERS)} or a FILE.toml.")
    module, _, attribute = ADAPTERS[name].partition(":")
    return getattr(import_module(module), attribute)
