"""The table of axes: what values each knows and which one holds when nobody chooses."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from e2e.base.cell import AXES as NAMES
from e2e.base.errors import SettingsError
from e2e.base.spelling import either, hint, meant

Value = str | int


@dataclass(frozen=True)
class Axis:
    """``values``: the words it knows; or, when empty, whole numbers from ``least`` on, or any word where it is
    ``free``. ``default`` None: derived from the rest of the cell, or none. ``unit`` of a number. ``offered``: some
    connector of this repository has it, so that error texts name it before they know the connector; which axes one
    connector has is its adapter's to say."""

    name: str
    values: tuple[str, ...] = ()
    default: Value | None = None
    least: int = 1
    unit: str = ""
    offered: bool = True
    free: bool = False

    def parse(self, raw: object) -> Value:
        """A value as a flag or a TOML file gives it. Raises SettingsError with what could be meant."""
        if self.free:
            return self._any_word(raw)
        if self.values:
            return self._word({True: "on", False: "off"}.get(raw, raw) if isinstance(raw, bool) else raw)
        if isinstance(raw, bool) or not str(raw).isascii() or not str(raw).isdigit() or int(str(raw)) < self.least:
            unit = f" ({self.unit})" if self.unit else ""
            raise SettingsError(f"axis {self.name}: {raw!r} is no whole number from {self.least} on{unit}.")
        return int(str(raw))

    def _any_word(self, raw: object) -> str:
        """It becomes a part of cell ids and file names."""
        if not re.fullmatch(r"[A-Za-z0-9_]+", str(raw)):
            raise SettingsError(f"axis {self.name}: {raw!r} is no word of letters, digits and '_'.")
        return str(raw)

    def _word(self, raw: object) -> str:
        if raw in self.values:
            return str(raw)
        close = meant(str(raw), self.values) if len(self.values) > 2 else None
        start = f"did you mean {close}? Use" if close else "use"
        raise SettingsError(f"axis {self.name}: {raw!r} is unknown; {start} {either(self.values)}.")


AXES: Mapping[str, Axis] = {
    axis.name: axis
    for axis in (
        Axis("layout", ("NHD", "HND"), default="NHD"),
        Axis("storage_format", ("chunkwise", "layerwise"), default="chunkwise"),
        Axis("overlap", ("off", "on"), default="off"),
        Axis("placement", ("index", "kernel"), default="index"),
        Axis("load", ("sync", "async")),
        Axis("release_after_layers", default=1, unit="layers"),
        Axis("chunk_tokens", default=256, unit="tokens"),
        Axis("block_size", default=16, unit="tokens"),
        Axis("dtype", ("auto", "float32", "bfloat16", "float16"), default="auto"),
        Axis("kv_cache_dtype", ("auto", "fp8", "fp8_e4m3", "fp8_e5m2"), default="auto", offered=False),
        Axis("concurrency", default=1, unit="requests at once"),
        Axis("tensor_parallel", default=1, unit="ranks"),
        Axis("load_failure_policy", ("fail", "recompute"), default="fail"),
        Axis("variant", free=True, offered=False),
    )
}
#: Of a cell's id, but chosen otherwise.
NO_AXES = {
    "connector": "one run has one connector; choose it with --connector",
    "scenario": "scenario is no axis; choose it by --scenario NAME",
    "fault": "fault is no axis; plant it by maru-e2e faults --fault",
    "round": "round is no axis; repeat clean cells by maru-e2e faults --rounds",
}
assert set(AXES) == set(NAMES) - set(NO_AXES)


def axis(name: str) -> Axis:
    """Raises SettingsError for a name that is no axis."""
    if name in NO_AXES:
        raise SettingsError(f"axis {name}: {NO_AXES[name]}.")
    if name not in AXES:
        raise SettingsError(
            f"axis {name!r} is unknown; {hint(name, [axis.name for axis in AXES.values() if axis.offered])}"
        )
    return AXES[name]
