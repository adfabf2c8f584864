"""A cell is one point of the grid: a value for each axis."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

#: Axes in the order in which they stand in a cell's id. The first block names a bare value (``NHD``),
#: the others ``axis_value`` (``overlap_on``), so that ``pytest -k "HND and overlap_on"`` selects. ``fault`` and
#: ``round`` are no axes of the grid: a planted fault, and the number of a repetition, make cells of their own.
BARE_AXES = ("layout", "storage_format", "placement")
AXES = (
    "layout", "storage_format", "overlap", "placement", "load", "release_after_layers", "chunk_tokens",
    "block_size", "dtype", "kv_cache_dtype", "concurrency", "tensor_parallel", "variant", "connector", "fault",
    "round",
)  # fmt: skip


@dataclass(frozen=True)
class Cell:
    """``settings``: axis -> value, values as str or int, read-only. Axes left out have no meaning for this connector.

    ``named`` are the axes whose values stand in the id (those that vary in this run).
    """

    settings: Mapping[str, str | int]
    named: tuple[str, ...] = field(default=("layout", "storage_format", "overlap", "placement"))

    def __post_init__(self) -> None:
        unknown = [axis for axis in self.settings if axis not in AXES]
        if unknown:
            raise ValueError(f"unknown axis {unknown[0]!r}")
        object.__setattr__(self, "settings", MappingProxyType(dict(self.settings)))

    @property
    def id(self) -> str:
        """Stable, unique in a run, made of letters, digits, ``_`` and ``-``: ``HND-layerwise-overlap_on-kernel``."""
        parts = []
        for axis in AXES:
            if axis in self.named and axis in self.settings:
                value = self.settings[axis]
                parts.append(str(value) if axis in BARE_AXES else f"{axis}_{value}")
        return "-".join(parts) or "default"

    def get(self, axis: str, default: str | int | None = None) -> str | int | None:
        return self.settings.get(axis, default)

    def __hash__(self) -> int:
        return hash((tuple(sorted(self.settings.items(), key=lambda kv: kv[0])), self.named))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Cell) and dict(self.settings) == dict(other.settings) and self.named == other.named
