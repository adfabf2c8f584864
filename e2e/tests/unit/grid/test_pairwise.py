"""Every two values that can go together meet in some cell, with far fewer cells than all of them."""

from itertools import combinations, product

from e2e.connectors.table import load
from e2e.grid.cells import expand
from e2e.grid.constraints import why_invalid
from e2e.grid.selection import GRIDS, Selection

AXES = {
    "layout": ("NHD", "HND"), "storage_format": ("chunkwise", "layerwise"), "overlap": ("off", "on"),
    "placement": ("index", "kernel"), "load": ("sync", "async"), "release_after_layers": (1, 4),
    "chunk_tokens": (128, 256),
}  # fmt: skip


def points():
    return [{name: value for name, (value,) in cell.items()} for cell in GRIDS["pairwise"]]


def test_all_possible_pairs_are_there():
    found = points()
    for (one, values), (other, others) in combinations(AXES.items(), 2):
        for value, second in product(values, others):
            pair = {one: value, other: second}
            implied = {**pair, **({"overlap": "on", "load": "async"} if "release_after_layers" in pair else {})}
            if why_invalid({**implied, **pair}) is None:
                assert any(pair.items() <= point.items() for point in found), pair


def test_no_cell_is_impossible_and_there_are_few():
    found = points()
    assert [why_invalid(point) for point in found if why_invalid(point)] == []
    assert all(("release_after_layers" in point) == (point["overlap"] == "on") for point in found)
    full = expand(Selection(GRIDS["full"]), load("embedded")).cells
    assert len(found) <= len(full) / 5


def test_it_is_the_same_every_time_and_can_be_narrowed():
    adapter = load("embedded")
    grid = expand(Selection(GRIDS["pairwise"]), adapter)
    assert grid.invalid == ()
    assert len({cell.id for cell in grid.cells}) == len(grid.cells) == len(points())
    narrowed = expand(Selection(GRIDS["pairwise"], ({"layout": "HND"},)), adapter).cells
    assert 0 < len(narrowed) < len(grid.cells)
    assert {cell.get("layout") for cell in narrowed} == {"HND"}
