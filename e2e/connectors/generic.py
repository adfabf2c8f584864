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
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from e2e.base.cell import Cell
from e2e.base.connector import ConnectorConfig, HitRule
from e2e.base.errors import SettingsError
from e2e.connectors.steps import aligned_step

try:
    import tomllib
except ModuleNotFoundError:  # Python 3.10
    import tomli as tomllib


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    name: str = Field(min_length=1, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
    kv_connector: str = Field(alias="class", min_length=1)
    module_path: str | None = Field(default=None, min_length=1)
    granularity: Literal["block"] | int = "block"
    hold_back: int = Field(default=1, ge=0)
    engine_args: list[str] = []
    extra: dict[str, object] = {}
    env: dict[str, str] = {}


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
    table = content.pop("connector", None)
    if content or not isinstance(table, dict):
        found = f"it has {', '.join(sorted(content))} beside it" if content else "it has none"
        raise SettingsError(f"{path}: a connector file holds one table [connector]; {found}.")
    try:
        found = _Table.model_validate(table)
    except ValidationError as error:
        raise SettingsError(f"{path}: {_first(error)}.") from error
    if isinstance(found.granularity, int) and found.granularity < 1:
        raise SettingsError(f'{path}: connector.granularity must be "block" or a number of tokens from 1 on.')
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


def _first(error: ValidationError) -> str:
    problem = error.errors()[0]
    key = ".".join(["connector", *(str(part) for part in problem["loc"][:2])])
    if problem["type"] == "extra_forbidden":
        known = ", ".join(field.alias or name for name, field in _Table.model_fields.items())
        return f"{key} is unknown; use {known}"
    if problem["type"] == "missing":
        return f"{key} is missing"
    if problem["loc"][0] == "granularity":
        return 'connector.granularity must be "block" or a number of tokens'
    return f"{key}: {problem['msg'][0].lower()}{problem['msg'][1:]}"


def _filled(value: Any, pool_dir: str) -> Any:
    if isinstance(value, str):
        return value.replace("{pool_dir}", pool_dir)
    if isinstance(value, dict):
        return {key: _filled(inner, pool_dir) for key, inner in value.items()}
    if isinstance(value, list):
        return [_filled(inner, pool_dir) for inner in value]
    return value
