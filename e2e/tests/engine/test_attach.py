"""An engine of somebody else: nothing is started or stopped, and its layout is taken as it is."""

from __future__ import annotations

import pytest

from e2e.connectors.table import load
from e2e.grid.cells import expand
from e2e.grid.selection import Selection
from e2e.stack.probe import is_healthy

pytestmark = [pytest.mark.engine, pytest.mark.timeout(900)]


def test_cells_on_an_attached_engine(rig, engine, tmp_path) -> None:
    adapter = load("embedded", pool_bytes=1 << 30)
    cell = expand(Selection(), adapter).cells[0]
    connector = adapter.config(cell, pool_dir=str(tmp_path / "pool"), block_size=16).alone()
    with engine(connector=connector, layout="NHD") as client:
        stories = ("--scenario", "replay", "--scenario", "arms", "--cell", "overlap=on,storage_format=layerwise")
        ran = rig("--attach", client.url, *stories, out=tmp_path / "out")
        assert is_healthy(client.url), "it is not ours to stop"
    assert ran.code == 0, ran.said
    assert {cell["verdict"] for cell in ran.cells.values()} == {"pass"}
    assert {cell["effective"]["layout"] for cell in ran.cells.values()} == {"NHD"}
    # steps that nobody chose don't end where a length does that is no whole unit: its bytes prove that one
    kinds = {cell["settings"].get("scenario", "replay"): cell["oracle"]["kind"] for cell in ran.cells.values()}
    assert kinds == {"replay": "coarse", "arms": "split_matched"}
    assert all(cell["hits"]["engine"] == cell["hits"]["predicted"] > 0 for cell in ran.cells.values())
    # what can't be seen without an engine of our own is said
    assert all("first answer" in {spot["fault_class"] for spot in cell["blind"]} for cell in ran.cells.values())
