"""Cells with a planted fault beside their clean twins, which differ in nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from e2e.base.cell import Cell
from e2e.faults.catalogue import FAULTS, find
from e2e.faults.info import Shape

#: Instead of a fault's name: none is planted, and all that is counted is false alarms.
NONE = "none"


def twins(cells: Iterable[Cell], rounds: int) -> list[Cell]:
    """Clean cells, each ``rounds`` times; one round leaves them as they are."""
    if rounds == 1:
        return list(cells)
    return [
        replace(cell, settings={**cell.settings, "round": number}) for cell in cells for number in range(1, rounds + 1)
    ]


def once(made: Iterable[Cell]) -> list[Cell]:
    """Of planted cells those that a score needs: of a fault that any story shows the first, of others the first of each
    story."""
    first: dict[tuple[object, object], Cell] = {}
    for cell in made:
        fault = cell.get("fault")
        first.setdefault((fault, cell.get("scenario") if find(str(fault)).scenarios else None), cell)
    return list(first.values())


def twins_of(made: Iterable[Cell], cells: Iterable[Cell]) -> list[Cell]:
    """Those of ``cells`` that one of the planted ones differs from in its fault alone."""
    without = [{axis: value for axis, value in cell.settings.items() if axis != "fault"} for cell in made]
    return [cell for cell in cells if dict(cell.settings) in without]


def planted(
    cells: Sequence[Cell], names: Sequence[str], shape: Shape, *, around: bool
) -> tuple[list[Cell], list[tuple[Cell, str]]]:
    """(cells with a fault each, [(cell, why the fault can't act there)]). No ``names``: all faults. ``around``:
    planted around a connector that nobody here wrote, so only into what it has loaded. SettingsError for an unknown
    name."""
    made, left_out = [], []
    if tuple(names) == (NONE,):
        return [], []
    for name, fault in {name: find(name) for name in names or FAULTS}.items():
        for cell in cells:
            faulty = replace(cell, settings={**cell.settings, "fault": name})
            why = fault.why_not(faulty, shape)
            if around and not fault.around_any:
                why = "It is a fault in a connector's own code and can't be planted around one that plants none."
            if why:
                left_out.append((faulty, why))
            else:
                made.append(faulty)
    return made, left_out
