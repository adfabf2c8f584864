"""The table of axes: what values each knows and which one holds when nobody chooses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches

from e2e.base.cell import AXES as NAMES
from e2e.base.errors import SettingsError

Value = str | int


@dataclass(frozen=True)
class Axis:
    """``values``: the words it knows; or, when empty, whole numbers from ``least`` on. ``default`` None: derived from
    the rest of the cell. ``unit`` of a number. ``per_engine``: in general it needs an engine of its own; which axes do
    for one connector is the adapter's to say."""

    name: str
    values: tuple[str, ...] = ()
    default: Value | None = None
    least: int = 1
    unit: str = ""
    per_engine: bool = False

    def parse(self, raw: object) -> Value:
        """A value as a flag or a TOML file gives it. Raises SettingsError with what could be meant."""
        if self.values:
            return self._word({True: "on", False: "off"}.get(raw, raw) if isinstance(raw, bool) else raw)
        if isinstance(raw, bool) or not str(raw).isascii() or not str(raw).isdigit() or int(str(raw)) < self.least:
            unit = f" ({self.unit})" if self.unit else ""
            raise SettingsError(f"axis {self.name}: {raw!r} is no whole number from {self.least} on{unit}.")
        return int(str(raw))

    def _word(self, raw: object) -> str:
        if raw in self.values:
            return str(raw)
        close = get_close_matches(str(raw).lower(), [value.lower() for value in self.values], n=1, cutoff=0.7)
        meant = [value for value in self.values if close == [value.lower()] and len(self.values) > 2]
        hint = f"did you mean {meant[0]}? Use " if meant else "use "
        raise SettingsError(f"axis {self.name}: {raw!r} is unknown; {hint}{_either(self.values)}.")


AXES: Mapping[str, Axis] = {
    axis.name: axis
    for axis in (
        Axis("layout", ("NHD", "HND"), default="NHD", per_engine=True),
        Axis("storage_format", ("chunkwise", "layerwise"), default="chunkwise"),
        Axis("overlap", ("off", "on"), default="off"),
        Axis("placement", ("index", "kernel"), default="index"),
        Axis("load", ("sync", "async")),
        Axis("release_after_layers", default=1, unit="layers"),
        Axis("chunk_tokens", default=256, unit="tokens", per_engine=True),
        Axis("block_size", default=16, unit="tokens", per_engine=True),
        Axis("dtype", ("auto", "float32", "bfloat16", "float16"), default="auto", per_engine=True),
        Axis("kv_cache_dtype", ("auto", "fp8", "fp8_e4m3", "fp8_e5m2"), default="auto", per_engine=True),
        Axis("concurrency", default=1, unit="requests at once"),
        Axis("tensor_parallel", default=1, unit="GPUs", per_engine=True),
        Axis("topology", ("same", "second", "restarted"), default="same"),
    )
}
#: Of a cell's id, but chosen otherwise.
NO_AXES = {
    "connector": "one run has one connector; choose it with --connector",
    "fault": "fault is no axis; plant it by maru-e2e faults --fault",
    "round": "round is no axis; repeat clean cells by maru-e2e faults --rounds",
}
assert set(AXES) == set(NAMES) - set(NO_AXES)


def axis(name: str) -> Axis:
    """Raises SettingsError for a name that is no axis."""
    if name in NO_AXES:
        raise SettingsError(f"axis {name}: {NO_AXES[name]}.")
    if name not in AXES:
        close = get_close_matches(name.lower().replace("-", "_"), AXES, n=1)
        hint = f"did you mean {close[0]}?" if close else f"use {_either(tuple(AXES))}."
        raise SettingsError(f"axis {name!r} is unknown; {hint}")
    return AXES[name]


def derived_load(overlap: Value | None) -> str:
    """Only an asynchronous load can land behind the compute; without overlap the plain one is synchronous."""
    return "async" if overlap == "on" else "sync"


def _either(words: tuple[str, ...]) -> str:
    return " or ".join(filter(None, (", ".join(words[:-1]), words[-1])))
