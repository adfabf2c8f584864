"""LMCache, in the engine's process (``lmcache``) or in a server of its own (``lmcache-mp``). Both need CUDA.

Its chunks are keyed by a hash of the tokens alone: two salts share them. A prompt that is served whole gets back all
but its last token, which no unit of chunks describes, so lengths of whole chunks are refused.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

from e2e.base.cell import Cell
from e2e.base.connector import Abilities, Adapter, ConnectorConfig, HitRule, ServiceSpec
from e2e.connectors.installed import installed
from e2e.connectors.probes import probe_tcp
from e2e.connectors.steps import aligned_step, chunk_tokens

_NO_GPU = "it runs on CUDA only; use a machine with an NVIDIA GPU, or --connector embedded here."
_NO_PACKAGE = "it needs the package lmcache, which the engine's Python doesn't have; pip install lmcache there."


class _Chunks(Adapter):
    """What both have in common: whole chunks, the last token held back. ``python``: the engine's."""

    python: str
    axes = frozenset({"layout", "chunk_tokens", "block_size", "dtype", "concurrency"})
    engine_axes = axes

    def missing(self, *, device: str) -> str | None:
        if device != "cuda":
            return _NO_GPU
        return None if "lmcache" in installed(self.python).modules else _NO_PACKAGE

    def refuses(self, cell: Cell, tokens: int) -> str | None:
        if tokens % chunk_tokens(cell) == 0:
            return (
                f"a prompt of whole chunks ({tokens} tokens, chunks of {chunk_tokens(cell)}) is served but for its "
                "last token, which no hit rule here predicts; choose another length."
            )
        return None

    def hit_rule(self, cell: Cell, *, block_size: int) -> HitRule:
        return HitRule(granularity=chunk_tokens(cell), hold_back=1)

    def step(self, cell: Cell, *, block_size: int) -> int:
        return aligned_step(chunk_tokens(cell), block_size)


@dataclass(frozen=True)
class LMCache(_Chunks):
    """``pool_bytes``: host memory that one engine start caches in."""

    pool_bytes: int = 4 << 30
    python: str = sys.executable

    name = "lmcache"
    description = "LMCache in the engine's process, chunks in host memory"

    @property
    def abilities(self) -> Abilities:
        return Abilities(pool_bytes=self.pool_bytes, salted=False)

    def config(self, cell: Cell, *, pool_dir: str, block_size: int) -> ConnectorConfig:
        return ConnectorConfig(
            kv_connector="LMCacheConnectorV1",
            env={
                "LMCACHE_CHUNK_SIZE": str(chunk_tokens(cell)),
                "LMCACHE_LOCAL_CPU": "True",
                "LMCACHE_MAX_LOCAL_CPU_SIZE": f"{self.pool_bytes / 2**30:g}",
                "LMCACHE_SAVE_UNFULL_CHUNK": "False",
                "LMCACHE_TRACK_USAGE": "false",
                # its keys come from Python's own hash
                "PYTHONHASHSEED": "0",
            },
        )


@dataclass(frozen=True)
class LMCacheServer(_Chunks):
    """``server``: host:port of a running LMCache server whose chunk size is the cell's ``chunk_tokens``."""

    server: str | None = None
    python: str = sys.executable

    name = "lmcache-mp"
    description = "LMCache as a server beside the engine, which --connector-server names"
    abilities = Abilities(shared_store=True, survives_restart=True, salted=False)

    def missing(self, *, device: str) -> str | None:
        if device == "cuda" and not self.server:
            return (
                "start an LMCache server with the chunk size of the cells, and name it by --connector-server HOST:PORT."
            )
        return super().missing(device=device)

    def config(self, cell: Cell, *, pool_dir: str, block_size: int) -> ConnectorConfig:
        service = ServiceSpec(
            name="lmcache-server",
            address=self.server or "",
            probe=probe_tcp,
            cure="start it, or check --connector-server",
        )
        return ConnectorConfig(
            kv_connector="LMCacheMPConnector",
            extra={"lmcache.mp.host": "tcp://{lmcache-server.host}", "lmcache.mp.port": "{lmcache-server.port}"},
            services=(service,),
        )
