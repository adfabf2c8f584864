"""What a connector's TOML file may hold, and one sentence for what it may not. docs/connectors.md shows a whole one."""

from __future__ import annotations

import re
from collections.abc import Mapping
from math import isfinite
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from e2e.base.errors import SettingsError
from e2e.base.spelling import either, hint, meant
from e2e.connectors.maru.servers import probe_maru
from e2e.connectors.maru.witness import MaruWitness
from e2e.connectors.probes import probe_tcp
from e2e.regular import read_text

try:
    import tomllib
except ModuleNotFoundError:  # Python 3.10
    import tomli as tomllib

#: Readers of what a connector can't be asked in the worker, and probes of its servers, by the names of a file.
WITNESSES = {"maru": MaruWitness}
PROBES = {"maru": probe_maru, "tcp": probe_tcp}


def _usable(value: object) -> object:
    """JSON for vLLM, words for a command line, values for an environment: no date, no infinity, no zero byte."""
    if isinstance(value, dict):
        for part in (*value, *value.values()):
            _usable(part)
    elif isinstance(value, list):
        for part in value:
            _usable(part)
    elif isinstance(value, str):
        if "\0" in value:
            raise ValueError("zero byte")
    elif not isinstance(value, bool | int | float) or not isfinite(value):
        raise ValueError("not JSON")
    return value


def _regular(pattern: str) -> str:
    try:
        re.compile(pattern)
    except re.error as error:
        raise ValueError("no regular expression") from error
    return pattern


def _has_port(address: str) -> str:
    if not 0 < int(address.rpartition(":")[2]) < 65536:
        raise ValueError("no port")
    return address


Word = Annotated[str, AfterValidator(_usable)]
Pattern = Annotated[str, AfterValidator(_regular)]
Env = dict[Annotated[str, Field(pattern=r"^[^=\x00]+$")], Word]
Table = dict[str, Any]
_NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]*$"
_WHOLE = "a whole number of tokens from 1 on"
_YES = "true or false"
_WORDS = "a list of texts, one a word, such as"
#: What each key must be, in words.
_MUST: Mapping[str, str] = {
    "name": "a name of letters, digits, '.', '_' and '-', such as \"mine\"",
    "class": 'the name of a Python class, such as "MyConnector"',
    "module_path": 'a dotted Python module, such as "my_package.kv"',
    "granularity": f'"block", {_WHOLE}, or "chunk_tokens" (the axis)',
    "hold_back": "a whole number of tokens from 0 on",
    "short_by": "a whole number of tokens from 0 on",
    "may_miss": "true or false",
    "longest_prompt": _WHOLE,
    "kv_role": '"kv_both", "kv_producer" or "kv_consumer"',
    "kv_load_failure_policy": '"fail" or "recompute"',
    "engine_args": f'{_WORDS} ["--block-size", "16"]',
    "extra": "a text, a number, true, false, or a list or table of them",
    "env": 'a text, such as "1", under a name without "="',
    "witness": f"a table with a name, {either(tuple(WITNESSES))}, and the texts that this reader needs",
    "command": f'{_WORDS} ["my-server", "--port", "{{my-server.port}}"]',
    "address": 'host:port of a server that runs already, such as "127.0.0.1:5555"',
    "ready": "a regular expression of a line in its log",
    "useless": "a regular expression of a line in its log",
    "probe": either(tuple(PROBES)),
    "need": "a whole number of bytes",
    "dax_folder": 'a folder, such as "{pool_dir}/pool.dax"',
    "limit_s": "seconds, above 0",
    "cure": "a text",
    "multiple_of": _WHOLE,
    "counters": _YES,
    "owns_store": _YES,
    "pool_bytes": "a whole number of bytes from 1 on",
    "shared_store": _YES,
    "survives_restart": _YES,
    "next_turn": _YES,
    "lora": _YES,
    "salted": _YES,
    "prefixes": _YES,
    "waits_seen": _YES,
    "lossy": _YES,
    "abilities": "a table [connector.abilities]",
    "why": "a sentence: why such a prompt can't be sent, and what to do",
    "axes": 'a table of axis = [values], such as variant = ["old", "new"]',
    "when": "a table axis.value with engine_args, extra or env",
    "servers": "a list of tables [[connector.servers]]",
    "refuses": "a list of tables [[connector.refuses]]",
}


class _Strict(BaseModel):
    model_config = ConfigDict(strict=True)


class WhenTable(_Strict):
    """What one value of an axis adds."""

    engine_args: list[Word] = []
    extra: dict[str, Annotated[object, AfterValidator(_usable)]] = {}
    env: Env = {}


class ServerTable(_Strict):
    """See ``base.connector.ServiceSpec``."""

    name: str = Field(pattern=r"^[a-z][a-z0-9-]*$")
    command: list[Word] = []
    address: Annotated[Word, Field(pattern=r"^[^\s:/]+:\d+$"), AfterValidator(_has_port)] | None = None
    ready: Pattern | None = None
    useless: Pattern | None = None
    probe: Literal["maru", "tcp"] | None = None
    need: int = Field(default=0, ge=0)
    dax_folder: Word | None = None
    env: Env = {}
    limit_s: float = Field(default=30.0, gt=0, allow_inf_nan=False, strict=False)
    cure: str = ""


class RefusalTable(_Strict):
    """Prompts that must not be sent: those of ``multiple_of`` tokens."""

    multiple_of: int = Field(ge=1)
    why: str = Field(min_length=1)


class AbilitiesTable(_Strict):
    """See ``base.connector.Abilities``; what is not stated is as it says there."""

    counters: bool | None = None
    owns_store: bool | None = None
    pool_bytes: int | None = Field(default=None, ge=1)
    shared_store: bool | None = None
    survives_restart: bool | None = None
    next_turn: bool | None = None
    lora: bool | None = None
    salted: bool | None = None
    prefixes: bool | None = None
    waits_seen: bool | None = None
    lossy: bool | None = None


class ConnectorTable(WhenTable):
    name: str = Field(pattern=_NAME)
    kv_connector: str = Field(alias="class", pattern=r"^[^\W\d]\w*$")
    module_path: str | None = Field(default=None, pattern=r"^[^\W\d]\w*(\.[^\W\d]\w*)*$")
    granularity: Literal["block", "chunk_tokens"] | Annotated[int, Field(ge=1)] = "block"
    hold_back: int = Field(default=1, ge=0)
    short_by: int = Field(default=0, ge=0)
    may_miss: bool = False
    longest_prompt: int | None = Field(default=None, ge=1)
    kv_role: Literal["kv_both", "kv_producer", "kv_consumer"] = "kv_both"
    kv_load_failure_policy: Literal["fail", "recompute"] = "fail"
    witness: dict[str, Word] = {}
    axes: dict[str, list[str | int | bool]] = {}
    abilities: Table = {}
    when: dict[str, dict[str, Table]] = {}
    servers: list[Table] = []
    refuses: list[Table] = []


Part = TypeVar("Part", bound=_Strict)


def read_file(path: str) -> ConnectorTable:
    """Raises SettingsError naming the file, the key and what it must be."""
    try:
        content = tomllib.loads(read_text(Path(path)))
    except OSError as error:
        raise SettingsError(f"{path}: can't be read ({error.strerror}); give a connector's TOML file.") from error
    except ValueError as error:
        raise SettingsError(f"{path}: is no TOML ({error}).") from error
    for name in sorted(set(content) - {"connector"}):
        close = meant(name, ("connector",))
        cure = f"did you mean {close}?" if close else "a connector file holds one table [connector]."
        raise SettingsError(f"{path}: {name} is unknown; {cure}")
    table = content.get("connector")
    if not isinstance(table, dict):
        raise SettingsError(f"{path}: a connector file holds one table [connector]; it has none.")
    return checked(ConnectorTable, table, path=path, where="connector")


def checked(model: type[Part], table: Mapping[str, Any], *, path: str, where: str) -> Part:
    """Unknown keys are named first: one that is misspelt is missing, too."""
    names = {field.alias or name for name, field in model.model_fields.items()}
    known = [key for key in _MUST if key in names]
    for key in table:
        if key not in known and model is ConnectorTable and key in AbilitiesTable.model_fields:
            raise SettingsError(f"{path}: {where}.{key} is an ability; write it under [{where}.abilities].")
        if key not in known:
            raise SettingsError(f"{path}: {where}.{key} is unknown; {hint(key, known)}")
    try:
        return model.model_validate(table)
    except ValidationError as error:
        problem = error.errors()[0]
        key, *inner = map(str, problem["loc"])
        if problem["type"] == "missing":
            raise SettingsError(f"{path}: {where}.{key} is missing; give {_MUST[key]}.") from error
        must = _MUST[key]
        if key in ("extra", "env"):
            key, must = (f"{key}.{inner[0]}", must) if inner else (key, f"a table [{where}.{key}]")
        raise SettingsError(f"{path}: {where}.{key} must be {must}.") from error
