"""Packs: what they tell, on how many cells, and what is left untold."""

from __future__ import annotations

from dataclasses import replace

import pytest

from e2e import chosen
from e2e.base.errors import SettingsError
from e2e.connectors.embedded import Embedded
from e2e.grid.cells import RERUN, by_engine, expand, in_scenarios, spread
from e2e.grid.selection import GRIDS, Selection
from e2e.scenarios.packs import PACKS, PART_OF, Pack, provokes, stories, untold
from e2e.scenarios.table import SCENARIOS
from e2e.settings import parsers
from e2e.settings.settings import Settings

GRID = expand(Selection(grid=GRIDS["default"]), Embedded())


def told(*names: str) -> dict[str, int]:
    """Scenario -> cells of the default grid."""
    chosen = stories(names)
    cells = [str(cell.get("scenario", RERUN)) for cell in in_scenarios(GRID, chosen, chosen).cells]
    return {name: cells.count(name) for name in dict.fromkeys(cells)}


def test_quick_tells_the_rerun_on_a_few_cells_and_the_rest_on_one():
    assert told("quick")["replay"] == 4
    assert {count for name, count in told("quick").items() if name != "replay"} == {1}
    assert {*PACKS["quick"].cells} == {"replay", "partial", "turns", "identity", "zero_delay"}


def test_nightly_tells_the_whole_grid_and_all_tells_everything():
    assert told("nightly")["replay"] == len(GRID.cells)
    assert told("all") == dict.fromkeys((name for name in SCENARIOS if name not in PART_OF), len(GRID.cells))
    assert untold(PACKS["all"].stories) == ()


def test_every_value_of_an_axis_is_told_in_quick():
    cells = in_scenarios(GRID, ("replay",), {"replay": 4}).cells
    for axis in ("layout", "storage_format", "overlap", "placement"):
        assert len({cell.get(axis) for cell in cells}) == 2, axis


@pytest.mark.parametrize(("most", "left"), [(None, 7), (9, 7), (7, 7), (3, 3), (2, 2), (1, 1)])
def test_cells_are_spread_and_the_last_is_among_them(most, left):
    cells = GRID.cells[:7]
    found = spread(cells, most)
    assert len(found) == len({cell.id for cell in found}) == left
    assert found[-1] == cells[-1]
    assert (found[0] == cells[0]) == (left > 1)


def test_what_is_named_itself_is_told_of_all_cells_in_any_order():
    assert stories(["quick", "partial"])["partial"] is None
    assert stories(["partial", "quick"])["partial"] is None
    assert stories(["quick", "nightly"])["partial"] == 2


def test_a_pack_may_name_what_has_not_landed(monkeypatch):
    pack = Pack("early", "", {"replay": None, "gremlin": 1})
    monkeypatch.setitem(PACKS, "early", pack)
    assert stories(["early"]) == {"replay": None}
    assert "gremlin" not in pack.leaves_out


def test_each_pack_says_what_it_leaves_out():
    for name in ("quick", "nightly"):
        text, left = PACKS[name].leaves_out, untold(PACKS[name].stories)
        assert all(each in text for each in left)
        assert all(f"{each} (" in text for each, most in PACKS[name].cells.items() if most and each in SCENARIOS)
    assert PACKS["all"].leaves_out == ""


def test_what_was_not_told_is_what_no_cell_played():
    assert untold(["replay"]) == tuple(name for name in SCENARIOS if name not in ("replay", "arms"))
    assert "replay" in untold(["arms"])
    assert "turns" not in untold(name for name in ("abort", "turns")), "it can be asked once only"


@pytest.mark.parametrize("name", SCENARIOS)
def test_every_scenario_says_what_it_provokes(name):
    assert provokes(name).endswith(".")
    assert "\n" not in provokes(name)


def test_what_is_not_in_the_table_any_more_provokes_nothing():
    assert provokes("gremlin") == ""


@pytest.mark.parametrize(("given", "meant"), [("quik", "quick"), ("nightli", "nightly"), ("al", "all")])
def test_a_pack_with_a_slip_is_found(given, meant):
    with pytest.raises(SettingsError, match=f"scenario '{given}' is unknown; did you mean {meant}"):
        parsers.scenario(given)


def test_no_pack_has_the_name_of_a_scenario():
    assert not {*PACKS} & {*SCENARIOS}


@pytest.fixture
def refusing(monkeypatch):
    """Plans of the default grid in these stories, where all but the rerun can't be had."""

    def part_of(key, cells, *others):
        if cells[0].get("scenario", RERUN) != RERUN:
            raise SettingsError(f"{key}: no room.")
        return key

    monkeypatch.setattr(chosen, "part_of", part_of)

    def parts(*names: str, cells=GRID.cells[:2]):
        settings, adapter = Settings(scenarios=names), Embedded()
        grid = in_scenarios(replace(GRID, cells=cells), settings.stories, settings.stories)
        return chosen.parts_of(by_engine(grid.cells, adapter), grid, settings, adapter, None)

    return parts


def test_what_only_a_pack_names_and_can_not_be_had_is_left_out_with_its_reason(refusing):
    parts, grid = refusing("quick")
    assert parts == ["NHD"]
    assert {cell.get("scenario") for cell in grid.cells} == {None}
    assert ("partial", "NHD-scenario_partial: no room.") in {(i.cell.get("scenario"), i.why) for i in grid.invalid}


@pytest.mark.parametrize("names", [("partial",), ("quick", "partial")])
def test_what_was_named_itself_and_can_not_be_had_is_refused(refusing, names):
    with pytest.raises(SettingsError, match="no room"):
        refusing(*names)


def test_where_nothing_of_a_pack_can_be_had_it_is_refused(refusing, monkeypatch):
    monkeypatch.setitem(PACKS, "early", Pack("early", "", {"partial": 1}))
    with pytest.raises(SettingsError, match="no room"):
        refusing("early")
