"""Cells as a matrix: what varies goes down and across, a story a column where there are several."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from e2e.base.cell import AXES
from e2e.base.judgement import CellJudgement
from e2e.report.document import Judged, Matrix, Tile

#: Columns that are easily looked over; stories may be more.
COLUMNS = 6
#: What makes cells of one place in the grid apart.
_OF_STORY = ("scenario", "fault", "round")


def matrix(cells: Sequence[CellJudgement], anchors: Mapping[str, str]) -> Matrix:
    """``anchors``: cell id -> where it stands on the page, of those that do. Two cells in one place show the worst."""
    axes = _telling(cells)
    down, across = _split(axes, cells)
    columns = list(dict.fromkeys(_key(cell, across) for cell in cells))
    table: dict[tuple, dict[tuple, CellJudgement]] = {}
    for cell in cells:
        row = table.setdefault(_key(cell, down), {})
        column = _key(cell, across)
        row[column] = max(row.get(column, cell), cell, key=lambda each: each.verdict.weight)
    rows = [
        (_words(key, down) or "all", [_tile(row.get(column), anchors) for column in columns])
        for key, row in table.items()
    ]
    corner = f"{', '.join(down)} \\ {', '.join(across)}" if down and across else ", ".join([*down, *across])
    return Matrix(corner, [_words(column, across) or "verdict" for column in columns], rows)


def _telling(cells: Sequence[CellJudgement]) -> list[str]:
    """Axes that tell cells apart which those before them don't: what follows from another one is left out."""
    others = dict.fromkeys(axis for cell in cells for axis in cell.settings if axis not in AXES)
    found: list[str] = []
    for axis in (*AXES, *others):
        if _count(cells, [*found, axis]) > _count(cells, found):
            found.append(axis)
    return found


def _split(axes: Sequence[str], cells: Sequence[CellJudgement]) -> tuple[list[str], list[str]]:
    """Stories across; without them as many of the last axes as keep the columns few; faults, of which there are many,
    go down."""
    if "scenario" in axes:
        return [axis for axis in axes if axis != "scenario"], ["scenario"]
    down, across = list(axes), list[str]()
    while len(down) > 1 and down[-1] not in _OF_STORY and _count(cells, [down[-1], *across]) <= COLUMNS:
        across.insert(0, down.pop())
    places = [axis for axis in axes if axis != "fault"]
    if len(places) < len(axes) and not across and _count(cells, places) <= COLUMNS:
        return ["fault"], places
    return down, across


def _count(cells: Sequence[CellJudgement], axes: Sequence[str]) -> int:
    return len({_key(cell, axes) for cell in cells})


def _value(cell: CellJudgement, axis: str) -> str:
    """The rerun is the story that goes without saying, and a clean cell has no fault."""
    missing = {"scenario": "replay", "fault": "clean"}.get(axis, "-")
    return str(cell.settings.get(axis, missing))


def _key(cell: CellJudgement, axes: Sequence[str]) -> tuple[str, ...]:
    return tuple(_value(cell, axis) for axis in axes)


def _words(key: Sequence[str], axes: Sequence[str]) -> str:
    switches = {"on", "off"}
    return " ".join(f"{axis} {value}" if value in switches or value.isdigit() else value
                    for axis, value in zip(axes, key, strict=True))  # fmt: skip


def _tile(cell: CellJudgement | None, anchors: Mapping[str, str]) -> Tile | None:
    return None if cell is None else Tile(Judged(cell.verdict.value), anchors.get(cell.id, ""))
