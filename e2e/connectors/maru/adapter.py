"""Real Maru, through ``kv_connector_module_path: maru_vllm``. Source of every rule: docs/maru.md.

Maru ignores keys that it doesn't know, so a setting counts only when the installed source reads its key: what is
effective instead stands in the evidence of each load, where the judge sees that it differs. Each engine start gets a
resource manager and a maru-server of its own on an emulated DAX file system, or uses a maru-server that is given.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from e2e.base.cell import Cell
from e2e.base.checkup import Line
from e2e.base.connector import Abilities, Adapter, ConnectorConfig, HitRule, ServiceSpec, Witness
from e2e.base.errors import EngineTimeout, SettingsError
from e2e.connectors.installed import installed
from e2e.connectors.maru import checkup, rpc
from e2e.connectors.maru.build import LOOK, VIEW_MOVED, Build, maru_of, misread
from e2e.connectors.maru.rpc import MaruServer
from e2e.connectors.maru.servers import OnDaxFolder, namespaces, probe_maru
from e2e.connectors.maru.witness import MaruWitness
from e2e.connectors.programs import program
from e2e.connectors.steps import aligned_step, chunk_tokens

#: current key -> its former name, read by versions that lack the current one
FORMER = {
    "maru_async_load": "maru_enable_deferred_loading",
    "maru_overlap_load_with_compute": "maru_enable_layerwise_overlap",
}
RESOURCE_MANAGER, SERVER = "maru-resource-manager", "maru-server"
_LOGGING = Path(__file__).with_name("logging.json")
_ASYNC_SINCE = (0, 16)
#: What July's scheduler asks for beside the worker's pool. Bytes.
_SCHEDULERS_REGION = 4 << 20
_INSTALL = (
    "give it as MARU_REQUIREMENT (a pip requirement or a wheel) and run scripts/maru, or use an image that has it"
)


@dataclass(frozen=True)
class Maru(Adapter):
    """``pool_bytes``: CXL region that a worker asks for. ``server``: host:port of a running maru-server; without one,
    a fresh server and pool per engine start. ``python``: the engine's. ``build``: the Maru that is installed
    there, None where only an image has it: then all keys are taken for known."""

    pool_bytes: int = 1 << 30
    server: str | None = None
    python: str = sys.executable
    build: Build | None = LOOK

    name = "maru"
    engine_axes = frozenset(
        {"layout", "storage_format", "overlap", "load", "release_after_layers", "chunk_tokens", "block_size", "dtype",
         "concurrency", "load_failure_policy"}
    )  # fmt: skip
    axes = engine_axes
    description = "Maru itself (CXL shared memory), as installed; its servers are started or given by MARU_SERVER_URL"

    def __post_init__(self) -> None:
        if self.build is LOOK:
            object.__setattr__(self, "build", maru_of(self.python))

    @property
    def abilities(self) -> Abilities:
        """Its keys know the tokens alone (docs/maru.md#what-is-stored-and-served), and it counts no waits."""
        return Abilities(
            counters=True, owns_store=self.server is None, pool_bytes=self.pool_bytes, shared_store=True,
            survives_restart=True, salted=False, waits_seen=False,
        )  # fmt: skip

    def missing(self, *, device: str) -> str | None:
        if self.build is None:
            return f"Maru is not installed (the engine's Python finds no module maru_vllm); {_INSTALL}."
        if lacking := self._lacking():
            return (
                f"{lacking[0]} is neither beside the engine's Python nor on PATH, so no Maru server can be started; "
                "run scripts/maru with a folder of Maru, which builds it, or name a running one by MARU_SERVER_URL."
            )
        return None

    def checkup(self, *, device: str) -> Iterator[Line]:
        seen = checkup.Seen(
            build=self.build, vllm=installed(self.python).vllm_version, lacking=self._lacking(),
            namespaces=self.build is not None and namespaces(), given=self.server is not None,
        )  # fmt: skip
        return checkup.lines(seen, device=device)

    def server_answers(self) -> Line | None:
        return checkup.answer(SERVER, self.server) if self.build and self.server else None

    def _lacking(self) -> tuple[str, ...]:
        """Programs that a fresh store needs and that are nowhere."""
        programs = () if self.server else (RESOURCE_MANAGER, SERVER)
        return tuple(name for name in programs if not program(name, python=self.python))

    def _program(self, name: str) -> str:
        return program(name, python=self.python) or name

    def unfit(self, *, device: str, attention: str | None) -> str | None:
        return misread(self.build, installed(self.python).vllm_version, device=device, attention=attention)

    def crowded(self, *, starts: int) -> str | None:
        """July's server frees no region that has keys, so a given one keeps the pool of every engine that was there.
        One that does not answer is told when the first engine needs it."""
        if not self.server:
            return None
        server = MaruServer(self.server, limit_s=rpc.FIRST_S)
        try:
            refused = server.lends(self.pool_bytes, instance="maru-e2e-probe")
            free = server.free_bytes() if self.build and self.build.july else None
        except (EngineTimeout, SettingsError):
            return None
        need = starts * (self.pool_bytes + _SCHEDULERS_REGION)
        if free is not None and free < need:
            return (
                f"maru-server at {self.server} has {free >> 20} MiB free, and {starts} engine starts need "
                f"{need >> 20} MiB (this Maru frees no region that has keys); restart it, give a smaller --pool-size, "
                "or narrow --cell."
            )
        if refused:
            return (
                f"maru-server at {self.server} can't lend {self.pool_bytes >> 20} MiB ({refused}): its resource "
                "manager has no pool, or a full one; give it one, or a smaller --pool-size."
            )
        return None

    def check(self, cell: Cell) -> str | None:
        vllm = installed(self.python).vllm_version
        if self.build and self.build.july and vllm and vllm < VIEW_MOVED and cell.get("layout") == "HND":
            return "this Maru loads nothing with HND on vLLM up to 0.22: it writes into a copy; use layout=NHD."
        overlap, layerwise = cell.get("overlap") == "on", cell.get("storage_format") == "layerwise"
        if self.build and self.build.overlap_kernel and overlap and layerwise:
            return "this Maru turns overlap off for layerwise objects; use storage_format=chunkwise."
        if cell.get("load") == "async" and vllm and vllm < _ASYNC_SINCE:
            return f"Maru refuses maru_async_load on vLLM {vllm[0]}.{vllm[1]}: it needs 0.16 or newer."
        return None

    def refuses(self, cell: Cell, tokens: int) -> str | None:
        """July serves such a prompt whole, and vLLM dies on ``assert num_new_tokens > 0``
        (docs/maru.md#what-is-stored-and-served)."""
        if self.build and self.build.july and tokens % chunk_tokens(cell) == 0:
            return (
                f"this Maru kills the engine when a prompt of whole chunks is served ({tokens} tokens, chunks of "
                f"{chunk_tokens(cell)}); choose another length, or a newer Maru, which holds one token back."
            )
        return None

    def config(self, cell: Cell, *, pool_dir: str, block_size: int) -> ConnectorConfig:
        extra = self._extra(cell, pool_dir=pool_dir)
        return ConnectorConfig(
            kv_connector="MaruKVConnector",
            module_path="maru_vllm",
            extra=extra,
            env={
                "MARU_STAT": "1",
                "MARU_LOG_LEVEL": "INFO",
                # the connector's logger is outside vLLM's, and its INFO lines appear nowhere without this
                "VLLM_LOGGING_CONFIG_PATH": str(_LOGGING),
            },
            load_failure_policy=str(cell.get("load_failure_policy", "fail")),
            services=self._services(pool_dir),
            witness=Witness(
                reader=MaruWitness,
                about={
                    "address": f"{{{SERVER}.address}}",
                    "instance": extra["maru_instance_id"],
                    **self.effective(cell),
                },
            ),
            build=self.build.as_json() if self.build else {"name": "maru", "version": "unknown"},
        )

    def _extra(self, cell: Cell, *, pool_dir: str) -> dict[str, object]:
        overlap = cell.get("overlap") == "on"
        extra: dict[str, object] = {
            "maru_server_url": f"tcp://{{{SERVER}.address}}",
            "maru_pool_size": self.pool_bytes,
            # the folder of this engine start: nobody else has that id, and scheduler and worker share it
            "maru_instance_id": pool_dir,
            "maru_kv_chunk_tokens": chunk_tokens(cell),
            "maru_use_layerwise": cell.get("storage_format") == "layerwise",
            "maru_async_load": cell.get("load") == "async",
            "maru_overlap_load_with_compute": overlap,
        }
        if overlap:
            extra["maru_overlap_release_after_layers"] = int(cell.get("release_after_layers", 1) or 1)
        return {self._spelt(key): value for key, value in extra.items()}

    def _spelt(self, key: str) -> str:
        former = FORMER.get(key)
        return former if former and self.build and key not in self.build.keys and former in self.build.keys else key

    def effective(self, cell: Cell) -> dict[str, str]:
        """What a load of this cell will be when the installed Maru heeds only the keys that its source reads."""

        def heeds(key: str) -> bool:
            return self.build is None or self._spelt(key) in self.build.keys

        chunkwise = cell.get("storage_format") == "chunkwise" and heeds("maru_use_layerwise")
        asynchronous = cell.get("load") == "async" and heeds("maru_async_load")
        overlap = cell.get("overlap") == "on" and asynchronous and heeds("maru_overlap_load_with_compute")
        return {
            "storage_format": "chunkwise" if chunkwise else "layerwise",
            "load": "async" if asynchronous else "sync",
            "overlap": "on" if overlap else "off",
        }

    def _services(self, pool_dir: str) -> tuple[ServiceSpec, ...]:
        cure = "see its log; raise --pool-size's room in /dev/shm, or name a running maru-server by MARU_SERVER_URL"
        if self.server:
            return (
                ServiceSpec(
                    name=SERVER, address=self.server, probe=probe_maru, need=self.pool_bytes,
                    cure="start the resource manager, then maru-server, and check MARU_SERVER_URL",
                ),
            )  # fmt: skip
        manager = ServiceSpec(
            name=RESOURCE_MANAGER,
            argv=(
                self._program(RESOURCE_MANAGER), "-H", "127.0.0.1", "-p", f"{{{RESOURCE_MANAGER}.port}}",
                "-d", f"{pool_dir}/state", "-l", "debug",
            ),
            ready=r"ready\b.*listening on",
            useless=r"no CXL/DAX devices found",
            within=OnDaxFolder(f"{pool_dir}/pool.dax"),
            cure=cure,
        )  # fmt: skip
        server = ServiceSpec(
            name=SERVER,
            argv=(
                self._program(SERVER), "--host", "127.0.0.1", "--port", f"{{{SERVER}.port}}",
                "--log-level", "INFO", "--rm-address", f"{{{RESOURCE_MANAGER}.address}}",
            ),
            ready=r"RPC Server started on",
            probe=probe_maru,
            need=self.pool_bytes,
            cure=cure,
        )  # fmt: skip
        return (manager, server)

    def hit_rule(self, cell: Cell, *, block_size: int) -> HitRule:
        """Whole chunks, one token held back. July holds none back, which shows only at lengths that are refused.
        maru_kv_chunk_tokens is rounded down to whole blocks."""
        return HitRule(granularity=max(chunk_tokens(cell) // block_size, 1) * block_size, hold_back=1)

    def step(self, cell: Cell, *, block_size: int) -> int:
        return aligned_step(self.hit_rule(cell, block_size=block_size).granularity, block_size)
