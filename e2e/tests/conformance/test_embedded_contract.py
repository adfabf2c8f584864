"""The rig's half and the engine's half of the embedded connector must speak of the same keys."""

from e2e.connectors.table import load
from e2e.grid.cells import expand
from e2e.grid.selection import GRIDS, Selection
from e2e.inside.config import RequestSettings, parse


def test_an_engine_uses_the_index_that_the_rig_runs_or_one_of_its_own():
    adapter = load("embedded", pool_bytes=1 << 20)
    given = adapter.config(expand(Selection(), adapter).cells[0], pool_dir="/pool", block_size=16)
    (service,) = given.services
    with_index = given.placed({service.name: "127.0.0.1:5555"})
    assert parse(with_index.extra, block_size=16).index == "127.0.0.1:5555"
    assert parse(given.alone().extra, block_size=16).index == ""
    assert given.alone().services == ()


def test_engine_half_takes_what_the_adapter_gives():
    adapter = load("embedded", pool_bytes=123 << 20)
    for cell in expand(Selection(GRIDS["full"]), adapter).cells:
        config = parse(adapter.config(cell, pool_dir="/pool", block_size=16).alone().extra, block_size=16)
        assert (config.pool_dir, config.pool_size, config.chunk_tokens) == (
            "/pool",
            123 << 20,
            cell.get("chunk_tokens"),
        )
        found = RequestSettings().override(adapter.request_params(cell))
        assert (found.storage_format, found.load, found.placement, found.cell) == (
            cell.get("storage_format"), cell.get("load"), cell.get("placement"), cell.id,
        )  # fmt: skip
        assert found.overlap is (cell.get("overlap") == "on")
        assert found.release_after_layers == cell.get("release_after_layers", 1)
