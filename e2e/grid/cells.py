"""From a selection to cells, grouped by the engine that they share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from types import MappingProxyType

from e2e.base.cell import AXES as ORDER
from e2e.base.cell import Cell, derived_load
from e2e.base.connector import Adapter
from e2e.base.errors import SettingsError
from e2e.grid.axes import AXES, Value
from e2e.grid.constraints import why_invalid
from e2e.grid.selection import Selection

#: The scenario of a cell that names none.
RERUN = "replay"


@dataclass(frozen=True)
class Invalid:
    """A combination that was asked for and can't run."""

    cell: Cell
    why: str

    @property
    def settings(self) -> Mapping[str, Value]:
        return self.cell.settings


@dataclass(frozen=True)
class Grid:
    """``cells``: unique ids, those of one engine key side by side. ``collapsed``: axes of the grid that mean nothing
    to the connector, or that the engine at hand has fixed, so that their values make no cells of their own."""

    cells: tuple[Cell, ...]
    invalid: tuple[Invalid, ...] = ()
    collapsed: tuple[str, ...] = ()

    def require_cells(self) -> Grid:
        """Raises SettingsError when nothing is left to run."""
        if not self.cells:
            first = self.invalid[0]
            raise SettingsError(
                f"no cell is left to run ({first.cell.id}: {first.why.rstrip('.')}); widen --cell or --grid."
            )
        return self


def expand(
    selection: Selection,
    adapter: Adapter,
    *,
    defaults: Mapping[str, Value] | None = None,
    fixed: Mapping[str, Value] | None = None,
) -> Grid:
    """The cells of a selection for one connector.

    ``defaults`` replace the axes' own (the dtype that suits the device, say). ``fixed`` are values that can't be chosen
    because of the engine at hand (attach, say): a --cell with another value is invalid, the grid collapses.
    Raises SettingsError when a --cell names an axis that the connector doesn't have.
    """
    _refuse_foreign(selection, adapter)
    try:
        selection = selection.along(adapter.values)
    except SettingsError as error:
        raise SettingsError(f"connector {adapter.name}: {error}") from None
    fixed = {axis: value for axis, value in (fixed or {}).items() if axis in adapter.axes}
    defaults = {**{name: axis.default for name, axis in AXES.items()}, **(defaults or {}), **fixed}
    asked = {name for values in selection.grid for name in values}
    points: dict[Cell, None] = {}
    invalid: dict[Cell, str] = {}
    for point, chosen in selection.points():
        settings = _complete(point, chosen, adapter.axes, defaults)
        for axis, value in fixed.items():
            if axis not in chosen:
                settings[axis] = value
        cell = Cell(settings, usual=defaults)
        why = _why_not_fixed(settings, fixed) or why_invalid(settings) or adapter.check(cell)
        if why:
            invalid.setdefault(cell, why)
        else:
            points.setdefault(cell)
    groups = list(dict.fromkeys(engine_key(cell, adapter) for cell in points))
    return Grid(
        cells=tuple(sorted(points, key=lambda cell: groups.index(engine_key(cell, adapter)))),
        invalid=tuple(Invalid(cell, why) for cell, why in invalid.items()),
        collapsed=tuple(name for name in ORDER if name in asked and (name not in adapter.axes or name in fixed)),
    )


def engine_key(cell: Cell, adapter: Adapter) -> str:
    """The part of a cell that needs an engine of its own; equal keys share one. ``HND``, ``NHD-chunk_tokens_128``.
    Scenarios share none: what they send and when differs."""
    own = {axis: value for axis, value in cell.settings.items() if axis == "scenario" or axis in adapter.engine_axes}
    return replace(cell, settings=own).id


def by_engine(cells: Iterable[Cell], adapter: Adapter) -> dict[str, tuple[Cell, ...]]:
    """Engine key -> its cells, both in the order of ``cells``."""
    groups: dict[str, tuple[Cell, ...]] = {}
    for cell in cells:
        key = engine_key(cell, adapter)
        groups[key] = (*groups.get(key, ()), cell)
    return groups


def in_scenarios(grid: Grid, scenarios: Iterable[str], most: Mapping[str, int | None] = MappingProxyType({})) -> Grid:
    """Its cells once for each story; of one that ``most`` names no more than so many. The rerun is what a cell does
    that names none."""

    def of(name: str) -> tuple[Cell, ...]:
        told = {} if name == RERUN else {"scenario": name}
        return tuple(replace(cell, settings={**cell.settings, **told}) for cell in spread(grid.cells, most.get(name)))

    return replace(grid, cells=tuple(cell for name in dict.fromkeys(scenarios) for cell in of(name)))


def shard(grid: Grid, adapter: Adapter, number: int, of: int) -> Grid:
    """The ``number``-th of ``of`` shares, in the order of the whole and as even as can be: of whole engine keys where
    there are so many of them, so that no engine is started twice. SettingsError where it holds none."""
    keys = [*by_engine(grid.cells, adapter).values()]
    units = keys if len(keys) >= of else [(cell,) for cells in keys for cell in cells]
    if len(units) < of:
        raise SettingsError(
            f"--shard {number}/{of}: there are {len(grid.cells)} cells; make no more shares than cells."
        )
    ends, cuts = [0, *accumulate(map(len, units))], [0]
    for share in range(1, of + 1):
        aim = ends[-1] * share // of
        cuts.append(min(range(cuts[-1] + 1, len(units) - of + share + 1), key=lambda cut: abs(ends[cut] - aim)))
    return replace(grid, cells=tuple(cell for unit in units[cuts[number - 1] : cuts[number]] for cell in unit))


def spread(cells: Sequence[Cell], most: int | None) -> Sequence[Cell]:
    """So many of them, evenly from the first to the last, which is in any case."""
    if most is None or most >= len(cells):
        return cells
    return [cells[len(cells) - 1 - i * (len(cells) - 1) // max(most - 1, 1)] for i in reversed(range(most))]


def _refuse_foreign(selection: Selection, adapter: Adapter) -> None:
    for chosen in selection.cells:
        for name in chosen:
            if name not in adapter.axes:
                has = ", ".join(axis for axis in ORDER if axis in adapter.axes)
                raise SettingsError(f"connector {adapter.name} has no axis {name}; leave it out (it has {has}).")


def _complete(
    point: Mapping[str, Value], chosen: frozenset[str], axes: frozenset[str], defaults: Mapping[str, Value | None]
) -> dict[str, Value]:
    """All axes of the connector, in order. Those that mean nothing at this point are dropped, unless a --cell named
    them: then the constraints say why it can't be."""
    settings: dict[str, Value] = {}
    for name in ORDER:
        if name not in axes:
            continue
        if name == "release_after_layers" and name not in chosen and settings.get("overlap") != "on":
            continue
        value = point.get(name, defaults.get(name))
        if name == "load" and value is None:
            value = derived_load(settings.get("overlap"))
        if value is not None:
            settings[name] = value
    return settings


def _why_not_fixed(settings: Mapping[str, Value], fixed: Mapping[str, Value]) -> str | None:
    for axis, value in fixed.items():
        if settings.get(axis) != value:
            return f"the engine here runs with {axis}={value} only."
    return None
