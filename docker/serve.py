"""One vLLM with the embedded connector, for ``docker compose up engine``; this process becomes the server.

Environment, each optional: LAYOUT, STORAGE_FORMAT, OVERLAP, PLACEMENT, CHUNK_TOKENS, BLOCK_SIZE, DTYPE (axes of the
grid), MODEL, DEVICE, ATTENTION, POOL_SIZE (as the flags of ``maru-e2e run``), KV_CACHE_SIZE (such as 1G),
MAX_MODEL_LEN (tokens), PORT.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from e2e.base.cell import Cell
from e2e.base.connector import ConnectorConfig
from e2e.base.errors import RigError, SettingsError
from e2e.connectors.table import load
from e2e.grid.cells import expand
from e2e.settings.commands import RunFlags
from e2e.settings.resolve import resolve_selection
from e2e.settings.sources import read
from e2e.stack.model import prepare_model
from e2e.stack.spec import EngineSpec

AXES = {
    "layout": "NHD", "storage_format": "chunkwise", "overlap": "off", "placement": "index",
    "chunk_tokens": "256", "block_size": "16", "dtype": "",
}  # fmt: skip
#: A setting of a run -> the variable that gives it here.
NAMES = {
    "device": "DEVICE", "attention": "ATTENTION", "pool_bytes": "POOL_SIZE", "kv_cache_bytes": "KV_CACHE_SIZE"
}  # fmt: skip


def engine_spec(environ: Mapping[str, str], *, pool: Path) -> EngineSpec:
    """The engine that the environment asks for. Raises UsageError for a value that can't be used."""
    cell = ",".join(
        f"{axis}={value}" for axis, default in AXES.items() if (value := environ.get(axis.upper()) or default)
    )
    given = {field: environ[name] for field, name in NAMES.items() if environ.get(name)}
    defaults = {"pool_bytes": "2G", "kv_cache_bytes": "1G"}
    flags = read(RunFlags, {"cells": [cell], **defaults, **given}, where=lambda field: NAMES.get(field, "engine"))
    settings = resolve_selection(flags)
    adapter = load("embedded", pool_bytes=settings.pool_bytes)
    (found,) = expand(
        settings.selection, adapter, defaults=settings.axis_defaults, fixed=settings.axis_fixed
    ).require_cells().cells  # fmt: skip
    block_size = int(found.settings["block_size"])
    return EngineSpec(
        name="engine",
        engine_key=found.id,
        role="connector",
        model=prepare_model(environ.get("MODEL") or "smollm2"),
        device=settings.device,
        layout=str(found.settings["layout"]),
        block_size=block_size,
        dtype=str(found.settings["dtype"]),
        attention=settings.attention,
        max_model_len=_tokens(environ.get("MAX_MODEL_LEN") or "2048"),
        max_num_batched_tokens=adapter.step(found, block_size=block_size),
        kv_cache_memory_bytes=settings.kv_cache_bytes,
        connector=_chosen_for_all(adapter.config(found, pool_dir=str(pool), block_size=block_size), found),
        # what allows to attach: resets and evidence go through vLLM's development endpoints
        env={"VLLM_SERVER_DEV_MODE": "1"},
    )


def _chosen_for_all(config: ConnectorConfig, cell: Cell) -> ConnectorConfig:
    """The cell's settings as the engine's own, for requests that bring none."""
    chosen = {
        "maru_use_layerwise": cell.settings["storage_format"] == "layerwise",
        "maru_async_load": cell.settings["load"] == "async",
        "maru_overlap_load_with_compute": cell.settings["overlap"] == "on",
        "embedded_placement": cell.settings["placement"],
    }
    alone = config.alone()
    return replace(alone, extra={**alone.extra, **chosen})


def _tokens(word: str) -> int:
    if not word.isdigit() or int(word) < 1:
        raise SettingsError(f"MAX_MODEL_LEN: {word!r} is no number of tokens; write 2048.")
    return int(word)


def main() -> None:
    try:
        spec = engine_spec(os.environ, pool=Path("/dev/shm/maru-e2e-engine"))
    except RigError as error:
        sys.exit(f"engine: {error}")
    print(f"engine: {spec.engine_key} on {spec.device}", flush=True)
    argv = spec.argv(int(os.environ.get("PORT") or 8000), python=sys.executable, host="0.0.0.0")
    os.execve(argv[0], argv, spec.environment(os.environ))


if __name__ == "__main__":
    main()
