"""Tables of the pages against the code that they tell of."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase

import pytest
import scenario_tables
from pages import ROOT, Page

from e2e.base.errors import (
    EXIT_CORRUPT,
    EXIT_ENGINE,
    EXIT_INCONCLUSIVE,
    EXIT_PASS,
    EXIT_RIG,
    EXIT_USAGE,
)
from e2e.base.event import KINDS
from e2e.base.verdict import Reason, Verdict
from e2e.connectors.generic import ENGINE_AXES
from e2e.connectors.table import ADAPTERS, load
from e2e.faults.catalogue import FAULTS
from e2e.faults.info import KINDS as FAULT_KINDS
from e2e.grid.axes import AXES, Axis
from e2e.grid.cells import expand
from e2e.grid.selection import GRIDS, Selection
from e2e.inside import config
from e2e.judge.classify import PATTERNS
from e2e.scenarios.table import SCENARIOS

DOCS = ROOT / "docs"


def rows(page: str, heading: str) -> list[tuple[str, ...]]:
    """The table whose first heading is ``heading``, without its head, in plain text."""
    return next(table[1:] for table in Page(DOCS / page).tables if table[0][0] == heading)


def connectors_of(axis: str) -> tuple[str, ...]:
    named = {name: load(name, server="127.0.0.1:1") for name in ADAPTERS}
    return tuple(name for name, adapter in named.items() if axis in adapter.axes)


def told(axis: Axis) -> tuple[str, str, str]:
    """Values, default and connectors as the table writes them."""
    values = " ".join(axis.values) or f"{axis.unit} from {axis.least}"
    default = "async with overlap, else sync" if axis.default is None else str(axis.default)
    has = connectors_of(axis.name)
    everyone = len(has) == len(ADAPTERS) and axis.name in ENGINE_AXES
    return values, default, "all" if everyone else ", ".join(sorted(has))


def test_axes():
    offered: Mapping[str, Axis] = {name: axis for name, axis in AXES.items() if connectors_of(name)}
    table = {row[0]: row[1:] for row in rows("axes.md", "axis")}
    assert list(table) == list(offered)
    for name, (values, default, meaning, connectors) in table.items():
        assert (values, default, connectors) == told(offered[name]), name
        assert meaning


def test_axes_that_no_connector_has_are_said_to_be_such():
    text = (DOCS / "axes.md").read_text()
    for name in ("kv_cache_dtype",):
        assert not connectors_of(name), f"{name} belongs into the table now"
        assert f"`{name}`" in text


def test_grids():
    embedded = load("embedded")
    table = {row[0]: row[1] for row in rows("axes.md", "--grid")}
    for name, products in GRIDS.items():
        assert table[name] == str(len(expand(Selection(grid=products), embedded).cells)), name


def test_faults():
    assert rows("faults.md", "kind") == list(FAULT_KINDS.items())
    assert [row for row in rows("faults.md", "fault")] == [
        (f.name, f.kind, f.what, f.stands_for) for f in FAULTS.values()
    ]


def test_scenarios():
    text = scenario_tables.PAGE.read_text(encoding="utf-8")
    assert text == scenario_tables.written(text), "python e2e/tests/unit/docs/scenario_tables.py"
    assert [row[0] for row in rows("scenarios.md", "scenario")] == list(SCENARIOS)
    assert all(row[1] for row in rows("scenarios.md", "scenario")), "a scenario's docstring says what it provokes"


def test_reasons():
    table = [(row[0], row[1]) for row in rows("report.md", "reason")]
    assert sorted(table) == sorted((reason.slug, reason.verdict.value) for reason in Reason)


def test_patterns():
    assert sorted(row[0] for row in rows("report.md", "pattern")) == sorted(PATTERNS)


def test_verdicts():
    assert sorted(row[0] for row in rows("report.md", "verdict")) == sorted(verdict.value for verdict in Verdict)


def test_exit_codes():
    codes = (EXIT_PASS, EXIT_CORRUPT, EXIT_USAGE, EXIT_INCONCLUSIVE, EXIT_ENGINE, EXIT_RIG)
    table = [row[0] for row in rows("report.md", "exit code")]
    assert [int(code) for code in table if int(code) < 128] == sorted(codes)


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        (config.INERT, "taken, without effect"),
        (config.REFUSED_UNLESS, "refused unless"),
        (config.USED, ""),
    ],
)
def test_keys_of_maru(keys, said: str):
    table = {row[0]: row[3] for row in rows("maru.md", "key")}
    for key in keys:
        if key.startswith("maru_"):
            assert table[key].startswith(said), key
    assert set(table) <= {*config.INERT, *config.REFUSED_UNLESS, *config.USED}


def test_kinds_of_events():
    """Each kind has a place in the table, and no place is empty."""
    patterns = [word for row in rows("recording.md", "kinds") for word in row[0].split(", ")]
    homes = {kind: [pattern for pattern in patterns if fnmatchcase(kind, pattern)] for kind in KINDS}
    assert [kind for kind, found in homes.items() if len(found) != 1] == []
    assert {found[0] for found in homes.values()} == set(patterns)
