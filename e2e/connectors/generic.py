"""Any connector, from a TOML file (docs/connectors.md). ``{pool_dir}`` in a string becomes an empty folder of that
engine start, ``{axis}`` the cell's value on an axis of the file, ``{server.address}`` where a server of the file is.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from e2e.base.cell import Cell
from e2e.base.connector import Abilities, Adapter, ConnectorConfig, HitRule, ServiceSpec, Witness
from e2e.base.errors import SettingsError
from e2e.base.spelling import either
from e2e.connectors.connector_file import (
    PROBES,
    WITNESSES,
    AbilitiesTable,
    ConnectorTable,
    RefusalTable,
    ServerTable,
    WhenTable,
    checked,
    read_file,
)
from e2e.connectors.maru.servers import OnDaxFolder
from e2e.connectors.steps import aligned_step

#: What every engine has, whatever its connector.
ENGINE_AXES = frozenset({"layout", "block_size", "dtype", "concurrency"})
_PLACE = re.compile(r"\{([a-z_]+)\}")


@dataclass(frozen=True)
class Generic(Adapter):
    """A connector that nobody here wrote. ``values``: its own axes, each with the words that the file knows for it;
    ``when``: axis -> word -> what that value adds."""

    table: ConnectorTable
    values: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    when: Mapping[str, Mapping[str, WhenTable]] = field(default_factory=dict)
    servers: tuple[ServerTable, ...] = ()
    refusals: tuple[RefusalTable, ...] = ()
    stated: AbilitiesTable = field(default_factory=AbilitiesTable)

    @property
    def name(self) -> str:
        return self.table.name

    @property
    def description(self) -> str:
        return f"{self.table.kv_connector} of {self.table.module_path or 'vLLM'}, by file"

    @property
    def axes(self) -> frozenset[str]:
        return ENGINE_AXES | self.values.keys()

    @property
    def engine_axes(self) -> frozenset[str]:
        return self.axes

    @property
    def abilities(self) -> Abilities:
        """What the file states. A witness counts."""
        stated = {"counters": bool(self.table.witness), **self.stated.model_dump(exclude_none=True)}
        return Abilities(**stated, longest_prompt=self.table.longest_prompt)

    def check(self, cell: Cell) -> str | None:
        for name, known in self.values.items():
            if str(cell.get(name)) not in known:
                return f"{self.name} knows {name} {either(known)} only."
        return None

    def refuses(self, cell: Cell, tokens: int) -> str | None:
        return next((refusal.why for refusal in self.refusals if tokens % refusal.multiple_of == 0), None)

    def config(self, cell: Cell, *, pool_dir: str, block_size: int) -> ConnectorConfig:
        table = self.table
        added = [when[word] for name, when in self.when.items() if (word := str(cell.get(name))) in when]
        places = {"pool_dir": pool_dir, **{name: cell.get(name) for name in self.values}}
        parts = [table, *added]
        witness = _filled(dict(table.witness), places)
        return ConnectorConfig(
            kv_connector=table.kv_connector,
            module_path=table.module_path,
            kv_role=table.kv_role,
            load_failure_policy=table.kv_load_failure_policy,
            extra=_filled({key: value for part in parts for key, value in part.extra.items()}, places),
            engine_args=tuple(str(word) for part in parts for word in _filled(part.engine_args, places)),
            env={key: str(_filled(value, places)) for part in parts for key, value in part.env.items()},
            services=tuple(_service(server, places) for server in self.servers),
            witness=Witness(reader=WITNESSES[witness.pop("name")], about=witness) if witness else None,
        )

    def hit_rule(self, cell: Cell, *, block_size: int) -> HitRule:
        table = self.table
        return HitRule(
            self._granularity(cell, block_size), table.hold_back, short_by=table.short_by, may_miss=table.may_miss
        )

    def step(self, cell: Cell, *, block_size: int) -> int | None:
        """None when the file sets --max-num-batched-tokens itself: the connector needs that step, aligned or not."""
        words = self.config(cell, pool_dir="", block_size=block_size).engine_args
        if any(word.split("=")[0] == "--max-num-batched-tokens" for word in words):
            return None
        return aligned_step(self._granularity(cell, block_size), block_size)

    def _granularity(self, cell: Cell, block_size: int) -> int:
        of_file = self.table.granularity
        return {"block": block_size, "chunk_tokens": cell.get("chunk_tokens")}.get(of_file, of_file)


def load_generic(path: str) -> Generic:
    """The adapter that a TOML file describes. Raises SettingsError naming the file, the key and what it must be."""
    table = read_file(path)
    values = {name: tuple(dict.fromkeys(map(_word, words))) for name, words in table.axes.items()}
    if empty := [name for name, words in values.items() if not words]:
        raise SettingsError(f"{path}: connector.axes.{empty[0]} has no value; give at least one or leave it out.")
    if table.granularity == "chunk_tokens" and "chunk_tokens" not in values:
        raise SettingsError(f'{path}: connector.granularity is "chunk_tokens"; give connector.axes.chunk_tokens too.')
    _refuse_witness(table.witness, path)
    return Generic(
        table=table,
        values=values,
        when={name: _when(path, name, values.get(name, ()), tables) for name, tables in table.when.items()},
        servers=tuple(
            _server(checked(ServerTable, server, path=path, where=f"connector.servers[{number}]"), path)
            for number, server in enumerate(table.servers)
        ),
        refusals=tuple(
            checked(RefusalTable, refusal, path=path, where=f"connector.refuses[{number}]")
            for number, refusal in enumerate(table.refuses)
        ),
        stated=checked(AbilitiesTable, table.abilities, path=path, where="connector.abilities"),
    )


def _refuse_witness(witness: Mapping[str, str], path: str) -> None:
    if not witness:
        return
    name = witness.get("name")
    if name not in WITNESSES:
        raise SettingsError(f"{path}: connector.witness.name must be {either(tuple(WITNESSES))}.")
    needs = WITNESSES[name].NEEDS
    for key in needs:
        if key not in witness:
            raise SettingsError(
                f"{path}: connector.witness.{key} is missing; witness {name} needs {' and '.join(needs)}."
            )


def _word(value: str | int | bool) -> str:
    return {True: "on", False: "off"}[value] if isinstance(value, bool) else str(value)


def _when(path: str, name: str, known: tuple[str, ...], tables: Mapping[str, Any]) -> dict[str, WhenTable]:
    for word in tables:
        if word not in known:
            raise SettingsError(f"{path}: connector.when.{name}.{word}: connector.axes.{name} does not hold {word!r}.")
    return {
        word: checked(WhenTable, more, path=path, where=f"connector.when.{name}.{word}")
        for word, more in tables.items()
    }


def _server(server: ServerTable, path: str) -> ServerTable:
    if bool(server.command) == bool(server.address):
        raise SettingsError(
            f"{path}: server {server.name} takes a command that starts it, or the address of one that runs; give one."
        )
    return server


def _service(server: ServerTable, places: Mapping[str, Any]) -> ServiceSpec:
    filled = _filled(server.model_dump(exclude={"command", "probe", "dax_folder"}), places)
    return ServiceSpec(
        argv=tuple(map(str, _filled(server.command, places))),
        probe=PROBES[server.probe] if server.probe else None,
        within=OnDaxFolder(str(_filled(server.dax_folder, places))) if server.dax_folder else None,
        **filled,
    )


def _filled(value: Any, places: Mapping[str, Any]) -> Any:
    """Strings with their places filled in; one that is nothing but a place keeps the value's type."""
    if isinstance(value, str):
        whole = _PLACE.fullmatch(value)
        if whole and whole[1] in places:
            return places[whole[1]]
        return _PLACE.sub(lambda found: str(places.get(found[1], found[0])), value)
    if isinstance(value, dict):
        return {key: _filled(inner, places) for key, inner in value.items()}
    if isinstance(value, list):
        return [_filled(inner, places) for inner in value]
    return value
