"""Every cell of the default grid as a test: ``pytest e2e/tests/engine/test_grid.py -k "HND and overlap_on"``.

Cells that are selected run together, on as few engines as the rig needs.
"""

from __future__ import annotations

import pytest

from e2e.base.cell import ALWAYS, Cell
from e2e.connectors.table import load
from e2e.grid.cells import expand
from e2e.grid.selection import Selection

CELLS = {cell.id: cell for cell in expand(Selection(), load("embedded")).cells}
pytestmark = [pytest.mark.engine, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def ran(request, rig, tmp_path_factory):
    chosen = [
        item.callspec.params["cell"]
        for item in request.session.items
        if "cell" in getattr(getattr(item, "callspec", None), "params", {}) and item.module is request.module
    ]
    words = [word for cell in chosen for word in ("--cell", _alone(CELLS[cell]))]
    return rig(*words, out=tmp_path_factory.mktemp("grid"))


def _alone(cell: Cell) -> str:
    """What selects it alone from the default grid; all else is as usual on this device."""
    return ",".join(f"{axis}={cell.settings[axis]}" for axis in ALWAYS)


@pytest.mark.parametrize("cell", CELLS)
def test_cell(cell: str, ran) -> None:
    found = ran.cells[cell]
    assert (found["verdict"], found["reason"]) == ("pass", None), ran.said
    assert found["first_generation"] == "identical"
    assert found["oracle"]["kind"] == "aligned"
    assert found["oracle"]["tokens_equal"] is True
    assert found["oracle"]["max_logprob_diff"] == 0
    hits = found["hits"]
    assert hits["predicted"] == hits["engine"] == hits["connector"] > 0
    assert found["effective"]["layout"] == cell.split("-")[0]
