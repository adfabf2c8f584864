"""Any connector, from a TOML file:

    [connector]
    name = "mine"                # how it is called in reports
    class = "MyConnector"        # --kv-transfer-config kv_connector
    module_path = "my.module"    # optional: where vLLM imports the class from
    granularity = "block"        # what it serves whole units of: "block" or a number of tokens
    hold_back = 1                # optional: last tokens of a prompt that it never loads
    engine_args = ["--flag"]     # optional: more flags for the engine
    [connector.extra]            # optional: kv_connector_extra_config
    [connector.env]              # optional: environment of the engine; PYTHONPATH is put in front

``{pool_dir}`` in a string of ``extra`` or ``env`` becomes an empty folder of that engine start.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from e2e.base.cell import Cell
from e2e.base.connector import ConnectorConfig, HitRule
from e2e.base.errors import SettingsError
from e2e.base.spelling import hint, meant
from e2e.connectors.steps import aligned_step

try:
    import tomllib
except ModuleNotFoundError:  # Python 3.10
    import tomli as tomllib


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


#: What each key must be, in words.
_MUST: Mapping[str, str] = {
    "name": "a name of letters, digits, '.', '_' and '-', such as \"mine\"",
    "class": 'the name of a Python class, such as "MyConnector"',
    "module_path": 'a dotted Python module, such as "my_package.kv"',
    "granularity": '"block", or a whole number of tokens from 1 on',
    "hold_back": "a whole number of tokens from 0 on",
    "engine_args": 'a list of texts, one a word, such as ["--block-size", "16"]',
    "extra": "a text, a number, true, false, or a list or table of them",
    "env": 'a text, such as "1", under a name without "="',
}


class _Table(BaseModel):
    model_config = ConfigDict(strict=True)

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
    kv_connector: str = Field(alias="class", pattern=r"^[^\W\d]\w*$")
    module_path: str | None = Field(default=None, pattern=r"^[^\W\d]\w*(\.[^\W\d]\w*)*$")
    granularity: Literal["block"] | Annotated[int, Field(ge=1)] = "block"
    hold_back: int = Field(default=1, ge=0)
    engine_args: list[Annotated[str, AfterValidator(_usable)]] = []
    extra: dict[str, Annotated[object, AfterValidator(_usable)]] = {}
    env: dict[Annotated[str, Field(pattern=r"^[^=]+$")], Annotated[str, AfterValidator(_usable)]] = {}


@dataclass(frozen=True)
class Generic:
    """A connector that nobody here wrote. ``granularity``: tokens, or None for the engine's block."""

    name: str
    kv_connector: str
    module_path: str | None = None
    granularity: int | None = None
    hold_back: int = 1
    engine_args: tuple[str, ...] = ()
    extra: Mapping[str, object] | None = None
    env: Mapping[str, str] | None = None

    axes = frozenset({"layout", "block_size", "dtype", "concurrency"})
    engine_axes = axes
    has_counters = False
    longest_prompt = None

    @property
    def description(self) -> str:
        return f"{self.kv_connector} of {self.module_path or 'vLLM'}, by file"

    def check(self, cell: Cell) -> str | None:
        return None

    def config(self, cell: Cell, *, pool_dir: str, block_size: int) -> ConnectorConfig:
        return ConnectorConfig(
            kv_connector=self.kv_connector,
            module_path=self.module_path,
            extra=_filled(dict(self.extra or {}), pool_dir),
            engine_args=self.engine_args,
            env=_filled(dict(self.env or {}), pool_dir),
        )

    def request_params(self, cell: Cell) -> None:
        return None

    def hit_rule(self, cell: Cell, *, block_size: int) -> HitRule:
        return HitRule(granularity=self.granularity or block_size, hold_back=self.hold_back)

    def step(self, cell: Cell, *, block_size: int) -> int | None:
        """None when the file sets --max-num-batched-tokens itself: the connector needs that step, aligned or not."""
        if any(arg.split("=")[0] == "--max-num-batched-tokens" for arg in self.engine_args):
            return None
        return aligned_step(self.granularity or block_size, block_size)


def load_generic(path: str) -> Generic:
    """The adapter that a TOML file describes. Raises SettingsError naming the file, the key and what it must be."""
    try:
        content = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingsError(f"{path}: can't be read ({error.strerror}); give a connector's TOML file.") from error
    except ValueError as error:
        raise SettingsError(f"{path}: is no TOML ({error}).") from error
    found = _checked(content, path)
    return Generic(
        name=found.name,
        kv_connector=found.kv_connector,
        module_path=found.module_path,
        granularity=None if found.granularity == "block" else found.granularity,
        hold_back=found.hold_back,
        engine_args=tuple(found.engine_args),
        extra=found.extra,
        env=found.env,
    )


def _checked(content: Mapping[str, Any], path: str) -> _Table:
    """Unknown keys are named first: one that is misspelt is missing, too."""
    for name in sorted(set(content) - {"connector"}):
        close = meant(name, ("connector",))
        cure = f"did you mean {close}?" if close else "a connector file holds one table [connector]."
        raise SettingsError(f"{path}: {name} is unknown; {cure}")
    table = content.get("connector")
    if not isinstance(table, dict):
        raise SettingsError(f"{path}: a connector file holds one table [connector]; it has none.")
    known = [field.alias or name for name, field in _Table.model_fields.items()]
    for key in table:
        if key not in known:
            raise SettingsError(f"{path}: connector.{key} is unknown; {hint(key, known)}")
    try:
        return _Table.model_validate(table)
    except ValidationError as error:
        problem = error.errors()[0]
        key, *inner = map(str, problem["loc"])
        if problem["type"] == "missing":
            raise SettingsError(f"{path}: connector.{key} is missing; give {_MUST[key]}.") from error
        if key in ("extra", "env"):
            where, must = (f"{key}.{inner[0]}", _MUST[key]) if inner else (key, f"a table [connector.{key}]")
            raise SettingsError(f"{path}: connector.{where} must be {must}.") from error
        raise SettingsError(f"{path}: connector.{key} must be {_MUST[key]}.") from error


def _filled(value: Any, pool_dir: str) -> Any:
    if isinstance(value, str):
        return value.replace("{pool_dir}", pool_dir)
    if isinstance(value, dict):
        return {key: _filled(inner, pool_dir) for key, inner in value.items()}
    if isinstance(value, list):
        return [_filled(inner, pool_dir) for inner in value]
    return value
