"""A cell is one point of the grid: a value for each axis."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

#: Axes in the order in which they stand in a cell's id. The first block names a bare value (``NHD``),
#: the others ``axis_value`` (``overlap_on``), so that ``pytest -k "HND and overlap_on"`` selects. ``scenario``,
#: ``fault`` and ``round`` are no axes of the grid: another story than the rerun (which has no word), a planted fault,
#: and the number of a repetition make cells of their own.
BARE_AXES = ("layout", "storage_format", "placement")
AXES = (
    "layout", "storage_format", "overlap", "placement", "load", "release_after_layers", "chunk_tokens",
    "block_size", "dtype", "kv_cache_dtype", "concurrency", "tensor_parallel",
    "load_failure_policy", "variant", "connector", "scenario",
    "fault", "round",
)  # fmt: skip
#: Axes that stand in every id, at whatever value.
ALWAYS = ("layout", "storage_format", "overlap", "placement")


@dataclass(frozen=True)
class Cell:
    """``settings``: axis -> value, values as str or int, read-only. Axes left out have no meaning for this connector.

    ``usual``: axis -> the value that need not be said, that of nobody's choice on this device. ``name``: its id, where
    that is another cell's; see ``at``.
    """

    settings: Mapping[str, str | int]
    usual: Mapping[str, str | int | None] = field(default_factory=dict, compare=False)
    name: str = ""

    def __post_init__(self) -> None:
        unknown = [axis for axis in self.settings if axis not in AXES]
        if unknown:
            raise ValueError(f"unknown axis {unknown[0]!r}")
        for table in ("settings", "usual"):
            object.__setattr__(self, table, MappingProxyType(dict(getattr(self, table))))

    @property
    def id(self) -> str:
        """Made of letters, digits, ``_`` and ``-``: ``HND-layerwise-overlap_on-kernel``. A function of this cell alone,
        whatever else a grid holds: what is as usual is left out, so that the next night finds the cell again."""
        if self.name:
            return self.name
        said = [axis for axis in AXES if axis in self.settings and (axis in ALWAYS or not self._as_usual(axis))]
        return "-".join(part(axis, self.settings[axis]) for axis in said) or "default"

    def _as_usual(self, axis: str) -> bool:
        usual = derived_load(self.settings.get("overlap")) if axis == "load" else self.usual.get(axis)
        return self.settings[axis] == usual

    def at(self, settings: Mapping[str, str | int]) -> Cell:
        """This cell on an engine that differs from it in these axes; what it stores is this cell's all the same."""
        return replace(self, settings={**self.settings, **settings}, name=self.id) if settings else self

    def get(self, axis: str, default: str | int | None = None) -> str | int | None:
        return self.settings.get(axis, default)

    def __hash__(self) -> int:
        return hash(tuple(sorted(self.settings.items(), key=lambda kv: kv[0])))


def part(axis: str, value: str | int) -> str:
    """One part of an id."""
    return str(value) if axis in BARE_AXES else f"{axis}_{value}"


def derived_load(overlap: str | int | None) -> str:
    """Only an asynchronous load can land behind the compute; without overlap the plain one is synchronous."""
    return "async" if overlap == "on" else "sync"


def is_same(old_id: str, cell_id: str, settings: Mapping[str, str | int]) -> bool:
    """Did a run before ids were a function of the cell alone mean this cell by ``old_id``? Then an axis stood in every
    id as soon as one cell of the grid was off its usual value, so ``old_id`` says at least what ``cell_id`` says, and
    nothing but what is so. No two cells of one grid are both meant: they would differ in what neither id says."""
    says = set(old_id.split("-"))
    return set(cell_id.split("-")) <= says <= {part(axis, value) for axis, value in settings.items()} | {"default"}
