"""The table of adapters, loaded by name when asked for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from importlib import import_module

from e2e.base.connector import Adapter
from e2e.base.errors import SettingsError
from e2e.base.spelling import meant
from e2e.connectors import third_party

#: Used where nobody names one.
DEFAULT = "embedded"
#: Variables that connectors themselves know for the address of their server.
SERVER_VARIABLES = ("MARU_SERVER_URL",)
#: name on the command line -> module:class of its adapter
ADAPTERS: Mapping[str, str] = {
    "embedded": "e2e.connectors.embedded:Embedded",
    "example": "e2e.connectors.example:Example",
    "decode-bench": "e2e.connectors.decode_bench:DecodeBench",
    "maru": "e2e.connectors.maru.adapter:Maru",
    "lmcache": "e2e.connectors.lmcache:LMCache",
    "lmcache-mp": "e2e.connectors.lmcache:LMCacheServer",
    "offloading": "e2e.connectors.offloading:Offloading",
}


def load(
    name: str, *, pool_bytes: int | None = None, pool_pace: str | None = None, server: str | None = None,
    python: str = "",
) -> Adapter:  # fmt: skip
    """The adapter of a name, a package.module:Class or a FILE.toml. Raises SettingsError for anything else.

    ``pool_bytes``, ``pool_pace``: size and pace of the connector's pool; refused for a connector that has none of its
    own, or none whose pace can be set. ``server``:
    host:port of a server that the connector is to use; connectors that use none don't care. ``python``: the
    engine's interpreter, for those that ask what it has installed; this one by default.
    """
    found = None if name.endswith(".toml") else _class(name)
    takes = {field.name for field in fields(found)} if is_dataclass(found) else set()
    if pool_bytes is not None and "pool_bytes" not in takes:
        raise SettingsError(f"connector {name} has no pool of its own; leave out --pool-size.")
    if pool_pace and "pool_pace" not in takes:
        raise SettingsError(f"connector {name} has no pool whose pace can be set; leave out --pool-pace.")
    if found is None:
        from e2e.connectors.generic import load_generic  # pydantic and the like, which no other connector needs

        return load_generic(name)
    given = {"pool_bytes": pool_bytes, "pool_pace": pool_pace, "server": server, "python": python or None}
    return third_party.made(found, name, {k: v for k, v in given.items() if k in takes and v is not None})


def names() -> list[str]:
    """Every name that ``load`` takes here, ours first."""
    return [*ADAPTERS, *sorted(set(third_party.offered()) - set(ADAPTERS))]


def _class(name: str) -> type[Adapter]:
    """Ours go first: no package can stand in for them."""
    if name in ADAPTERS:
        module, _, attribute = ADAPTERS[name].partition(":")
        return getattr(import_module(module), attribute)
    if ":" in name:
        return third_party.by_path(name)
    if points := third_party.offered().get(name):
        return third_party.by_entry_point(name, points)
    close = meant(name, names())
    start = f"did you mean {close}? Use" if close else "use"
    known = ", ".join(names())
    raise SettingsError(f"connector {name!r} is unknown; {start} {known}, a FILE.toml or package.module:Class.")
