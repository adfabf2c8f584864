from dataclasses import dataclass, replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from e2e.base.cell import ALWAYS, derived_load, is_same, part
from e2e.base.cell import AXES as ORDER
from e2e.base.connector import Adapter
from e2e.base.errors import SettingsError
from e2e.grid.axes import AXES, axis
from e2e.grid.cells import by_engine, engine_key, expand, shard
from e2e.grid.selection import GRIDS, Selection, parse_cell, parse_grid


@dataclass(frozen=True)
class Fake(Adapter):
    """An adapter as the grid sees it; ``impossible``: axis=value that it can't run."""

    name: str = "fake"
    axes: frozenset = frozenset(AXES) - {"kv_cache_dtype", "tensor_parallel"}
    engine_axes: frozenset = frozenset({"layout", "chunk_tokens", "block_size", "dtype"})
    impossible: tuple = ()
    config = hit_rule = step = None

    def check(self, cell):
        return next((f"no {a}={v} here." for a, v in self.impossible if cell.get(a) == v), None)


FULL = Fake()
PLAIN = Fake("plain", frozenset({"layout", "block_size"}), frozenset({"layout", "block_size"}))


def ids(grid):
    return [cell.id for cell in grid.cells]


def test_default_grid_has_sixteen_cells_on_two_engines():
    grid = expand(Selection(), FULL)
    assert len(grid.cells) == len(set(ids(grid))) == 16
    assert grid.invalid == ()
    assert {key: len(cells) for key, cells in by_engine(grid.cells, FULL).items()} == {"NHD": 8, "HND": 8}
    assert "HND-layerwise-overlap_on-kernel" in ids(grid)
    assert all(cell.get("load") == ("async" if cell.get("overlap") == "on" else "sync") for cell in grid.cells)
    assert all(("release_after_layers" in cell.settings) == (cell.get("overlap") == "on") for cell in grid.cells)


def test_full_grid_adds_loads_releases_and_chunks():
    grid = expand(Selection(GRIDS["full"]), FULL)
    assert len(grid.cells) == 64
    assert grid.invalid == ()
    assert {(c.get("overlap"), c.get("load")) for c in grid.cells} == {
        ("off", "sync"),
        ("off", "async"),
        ("on", "async"),
    }
    assert {c.get("release_after_layers") for c in grid.cells} == {None, 1, 4}
    assert len(by_engine(grid.cells, FULL)) == 4


def test_cells_of_one_engine_stand_side_by_side():
    cells = expand(Selection(GRIDS["full"]), FULL).cells
    keys = [engine_key(cell, FULL) for cell in cells]
    assert sum(a != b for a, b in pairwise(keys)) == len(set(keys)) - 1


def test_axes_that_the_connector_lacks_collapse_and_are_named():
    grid = expand(Selection(), PLAIN)
    assert ids(grid) == ["NHD", "HND"]
    assert grid.collapsed == ("storage_format", "overlap", "placement")


def test_named_value_picks_from_the_grid():
    grid = expand(Selection(cells=(parse_cell("layout=HND,overlap=on"),)), FULL)
    assert len(grid.cells) == 4
    assert {(c.get("layout"), c.get("overlap")) for c in grid.cells} == {("HND", "on")}


def test_named_value_beyond_the_grid_replaces_and_shows_in_the_id():
    grid = expand(Selection(cells=(parse_cell("layout=HND,chunk_tokens=64"),)), FULL)
    assert len(grid.cells) == 8
    assert {c.get("chunk_tokens") for c in grid.cells} == {64}
    assert all(cell.id.endswith("-chunk_tokens_64") for cell in grid.cells)
    assert list(by_engine(grid.cells, FULL)) == ["HND-chunk_tokens_64"]


def test_several_cells_are_alternatives_without_doubles():
    one, two = parse_cell("layout=HND"), parse_cell("placement=kernel")
    grid = expand(Selection(cells=(one, two)), FULL)
    assert len(grid.cells) == 12
    assert len(set(ids(grid))) == 12


def test_full_grid_narrowed_to_overlap_on_keeps_only_that_half():
    grid = expand(Selection(GRIDS["full"], cells=(parse_cell("overlap=on"),)), FULL)
    assert len(grid.cells) == 32
    assert grid.invalid == ()


def shares_of(grid, of: int):
    return [shard(grid, FULL, number, of).cells for number in range(1, of + 1)]


def test_shares_of_a_grid_are_its_cells_each_once_and_in_its_order():
    grid = expand(Selection(GRIDS["full"]), FULL)
    keys = by_engine(grid.cells, FULL)
    for of in (1, 2, 3, len(keys), len(keys) + 1, 7, len(grid.cells)):
        shares = shares_of(grid, of)
        assert [cell for share in shares for cell in share] == list(grid.cells)
        assert all(shares)
    assert max(map(len, shares_of(grid, 7))) - min(map(len, shares_of(grid, 7))) <= 1, "fewer engine keys than shares"
    with pytest.raises(SettingsError, match="there are 16 cells; make no more shares than cells"):
        shard(expand(Selection(), FULL), FULL, 1, 17)


def test_shares_are_of_whole_engine_keys_where_there_are_enough():
    grid = expand(Selection(GRIDS["full"]), FULL)
    keys = by_engine(grid.cells, FULL)
    assert shares_of(grid, len(keys)) == list(keys.values()), "one each"
    for of in range(2, len(keys)):
        held = [{engine_key(cell, FULL) for cell in share} for share in shares_of(grid, of)]
        assert sum(map(len, held)) == len(keys)


def test_a_planted_fault_goes_with_its_engine_key():
    grid = expand(Selection(GRIDS["full"]), FULL)
    planted = tuple(replace(cell, settings={**cell.settings, "fault": "bit_flip"}) for cell in grid.cells)
    keys = by_engine(grid.cells, FULL)
    shares = shares_of(replace(grid, cells=(*grid.cells, *planted)), len(keys))
    assert [len(share) for share in shares] == [2 * len(cells) for cells in keys.values()]


def test_impossible_combinations_are_listed_with_their_reason():
    grid = expand(Selection(cells=(parse_cell("layout=NHD,load=sync"),)), FULL)
    assert len(grid.cells) == 4
    assert len(grid.invalid) == 4
    assert all(invalid.settings["overlap"] == "on" for invalid in grid.invalid)
    assert "needs load=async" in grid.invalid[0].why


def test_an_id_is_the_cells_own_whatever_else_the_grid_holds():
    wide = expand(Selection(GRIDS["full"]), FULL)
    by_settings = {tuple(sorted(cell.settings.items())): cell.id for cell in wide.cells}
    for name in ("default", "pairwise"):
        for cell in expand(Selection(GRIDS[name]), FULL).cells:
            assert by_settings.get(tuple(sorted(cell.settings.items())), cell.id) == cell.id
    for cell in wide.cells:
        alone = expand(Selection(cells=(dict(cell.settings),)), FULL)
        assert ids(alone) == [cell.id]
    assert set(ids(expand(Selection(), FULL))) <= set(ids(wide))
    assert "HND-chunkwise-overlap_off-index-load_async-chunk_tokens_128" in ids(wide)


@given(st.data())
def test_ids_of_one_grid_differ_and_name_its_cells_again(data):
    """Whatever grid: no two cells share an id, and an id from before (an axis in all ids as soon as one cell is off its
    usual value) means just one of them."""
    # at most 3 ** 4 cells: what is compared grows with their square
    axes = data.draw(st.sets(st.sampled_from(sorted(FULL.axes - {"variant"})), min_size=1, max_size=4))
    values = {name: st.sampled_from(AXES[name].values or (16, 128, 256, 1, 4)) for name in sorted(axes)}
    grid = {name: tuple(data.draw(st.sets(some, min_size=1, max_size=3))) for name, some in values.items()}
    cells = expand(Selection((grid,)), FULL, defaults={"dtype": "bfloat16", "block_size": 128}).cells
    assert len({cell.id for cell in cells}) == len(cells)
    for old, cell in zip(former_ids(cells), cells, strict=True):
        assert [c for c in cells if is_same(old, c.id, c.settings)] == [cell]


def former_ids(cells):
    """As ids were made: an axis stands in all of them as soon as one cell is off its usual value."""

    def usual(cell, name):
        return derived_load(cell.get("overlap")) if name == "load" else cell.usual.get(name)

    special = {name for c in cells for name, value in c.settings.items() if value != usual(c, name)}
    named = [name for name in ORDER if name in ALWAYS or name in special]
    return ["-".join(part(a, c.settings[a]) for a in named if a in c.settings) or "default" for c in cells]


@pytest.mark.parametrize(
    ("cell", "why"),
    [
        ("overlap=on,load=sync", "needs load=async"),
        ("overlap=off,release_after_layers=4", "only with overlap=on"),
        ("chunk_tokens=100", "no multiple of block_size"),
    ],
)
def test_nothing_left_is_a_usage_error_with_the_reason(cell, why):
    grid = expand(Selection(cells=(parse_cell(cell),)), FULL)
    assert grid.cells == ()
    with pytest.raises(SettingsError, match=f"no cell is left to run.*{why}"):
        grid.require_cells()


def test_adapter_refusals_are_invalid():
    grid = expand(Selection(), Fake(impossible=(("placement", "kernel"),)))
    assert len(grid.cells) == len(grid.invalid) == 8
    assert grid.invalid[0].why == "no placement=kernel here."


def test_naming_an_axis_that_the_connector_lacks_is_refused():
    with pytest.raises(SettingsError, match=r"plain has no axis overlap; leave it out \(it has layout, block_size\)"):
        expand(Selection(cells=(parse_cell("overlap=on"),)), PLAIN)


def test_defaults_of_the_device_hold_and_do_not_clutter_ids():
    grid = expand(Selection(), FULL, defaults={"dtype": "float32"})
    assert {c.get("dtype") for c in grid.cells} == {"float32"}
    assert "HND-layerwise-overlap_on-kernel" in ids(grid)
    grid = expand(Selection(cells=(parse_cell("dtype=bfloat16"),)), FULL, defaults={"dtype": "float32"})
    assert all("dtype_bfloat16" in cell.id for cell in grid.cells)


def test_attached_engine_fixes_its_values():
    fixed = {"layout": "HND", "block_size": 128, "tensor_parallel": 1}
    grid = expand(Selection(), FULL, fixed=fixed)
    assert len(grid.cells) == 8
    assert {(c.get("layout"), c.get("block_size"), c.get("tensor_parallel")) for c in grid.cells} == {
        ("HND", 128, None)
    }
    assert grid.collapsed == ("layout",)
    asked = expand(Selection(cells=(parse_cell("layout=NHD"),)), FULL, fixed=fixed)
    assert asked.cells == ()
    assert asked.invalid[0].why == "the engine here runs with layout=HND only."


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("layout=NDH", "axis layout: 'NDH' is unknown; use NHD or HND."),
        (
            "dtype=float23",
            "axis dtype: 'float23' is unknown; did you mean float32? Use auto, float32, bfloat16 or float16.",
        ),
        ("overlop=on", "axis 'overlop' is unknown; did you mean overlap?"),
        ("Layout=NHD", "axis 'Layout' is unknown; did you mean layout?"),
        (
            "topology=same",
            "axis 'topology' is unknown; use layout, storage_format, overlap, placement, load, release_after_layers, "
            "chunk_tokens, block_size, dtype, concurrency, tensor_parallel or load_failure_policy.",
        ),
        ("chunk_tokens=0", "axis chunk_tokens: '0' is no whole number from 1 on (tokens)."),
        ("chunk_tokens=1.5", "axis chunk_tokens: '1.5' is no whole number from 1 on (tokens)."),
        ("chunk_tokens=²", "axis chunk_tokens: '²' is no whole number from 1 on (tokens)."),
        ("layout", "'layout' is no axis=value; write layout=HND,overlap=on."),
        ("", "'' is no axis=value; write layout=HND,overlap=on."),
        (
            "layout=NHD,layout=HND",
            "'layout=NHD,layout=HND' names layout twice; give --cell twice for alternatives.",
        ),
        ("connector=maru", "axis connector: one run has one connector; choose it with --connector."),
    ],
)
def test_bad_cells_get_one_sentence(text, sentence):
    with pytest.raises(SettingsError) as caught:
        parse_cell(text)
    assert str(caught.value) == sentence


def test_grid_file():
    (values,) = parse_grid(
        {"grid": {"layout": "HND", "overlap": [True, "off"], "chunk_tokens": [128, 128]}}, source="f"
    )
    assert values == {"layout": ("HND",), "overlap": ("on", "off"), "chunk_tokens": (128,)}
    grid = expand(Selection((values,)), FULL)
    assert [c.get("overlap") for c in grid.cells] == ["on", "off"]
    assert {c.get("storage_format") for c in grid.cells} == {"chunkwise"}


@pytest.mark.parametrize(
    ("table", "sentence"),
    [
        ({}, "f: a grid file holds one table [grid] of axis = [values]; it has none."),
        ({"grid": {}, "gird": {}}, "f: gird is unknown; did you mean grid?"),
        ({"layout": ["NHD"]}, "f: layout is unknown; put axes into the table [grid]."),
        ({"grid": {"layuot": ["NHD"]}}, "f: axis 'layuot' is unknown; did you mean layout?"),
        ({"grid": []}, "f: a grid file holds one table [grid] of axis = [values]; it has none."),
        ({"grid": {"layout": []}}, "f: axis layout has no value; give at least one or leave it out."),
        ({"grid": {"layout": ["NDH"]}}, "f: axis layout: 'NDH' is unknown; use NHD or HND."),
        ({"grid": {"layout": [["NHD"]]}}, "f: axis layout: ['NHD'] is unknown; use NHD or HND."),
        ({"grid": {"block_size": [True]}}, "f: axis block_size: True is no whole number from 1 on (tokens)."),
    ],
)
def test_bad_grid_files_get_one_sentence(table, sentence):
    with pytest.raises(SettingsError) as caught:
        parse_grid(table, source="f")
    assert str(caught.value) == sentence


values_of = {name: st.sampled_from(a.values) if a.values else st.integers(1, 4096) for name, a in AXES.items()}
values_of["variant"] = st.from_regex(r"[A-Za-z0-9_]+", fullmatch=True)


@given(st.data())
def test_any_selection_gives_unique_ids_and_whole_cells(data):
    names = data.draw(st.sets(st.sampled_from(sorted(FULL.axes)), min_size=1))
    grid_values = {n: tuple(data.draw(st.lists(values_of[n], min_size=1, max_size=3, unique=True))) for n in names}
    chosen = data.draw(st.sets(st.sampled_from(sorted(FULL.axes)), max_size=3))
    cells = ({n: data.draw(values_of[n]) for n in chosen},) if chosen else ()
    grid = expand(Selection((grid_values,), cells), FULL)
    assert grid.cells or grid.invalid
    assert len(set(ids(grid))) == len(grid.cells)
    by_key = by_engine(grid.cells, FULL)
    assert sum(map(len, by_key.values())) == len(grid.cells)
    for cell in grid.cells:
        assert set(cell.settings) | {"release_after_layers", "variant"} == FULL.axes
        assert all(axis(name).parse(value) == value for name, value in cell.settings.items())
        assert not set(cell.id) - set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")
    for same in by_key.values():
        assert len({tuple(c.settings[a] for a in sorted(FULL.engine_axes)) for c in same}) == 1
