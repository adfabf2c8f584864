"""A grid in words, for whoever asks what would run."""

from __future__ import annotations

from collections.abc import Sequence

from e2e.base.connector import Adapter
from e2e.grid.cells import Grid, Invalid, engine_key


def cells_text(grid: Grid, adapter: Adapter) -> str:
    """One line a cell: id, engine key; then what collapsed and what is invalid."""
    rows = [("CELL", "ENGINE KEY"), *((cell.id, engine_key(cell, adapter)) for cell in grid.cells)]
    width = max(len(name) for name, _ in rows)
    lines = [f"{name:<{width}}  {key}" for name, key in rows]
    lines += ["", f"connector: {adapter.name}", f"cells: {len(grid.cells)}"]
    lines += [f"engine keys: {len({key for _, key in rows[1:]})}"]
    if grid.collapsed:
        lines.append(f"axes without a choice here: {', '.join(grid.collapsed)}")
    lines += [f"invalid: {text}" for text in invalid_text(grid.invalid)]
    return "\n".join(lines)


def invalid_text(invalid: Sequence[Invalid]) -> list[str]:
    """One text a reason, with how many cells it rules out."""
    by_reason: dict[str, list[str]] = {}
    for each in invalid:
        by_reason.setdefault(each.why.rstrip("."), []).append(each.cell.id)
    return [f"{why} ({ids[0]}{f' and {len(ids) - 1} more' if ids[1:] else ''})" for why, ids in by_reason.items()]
