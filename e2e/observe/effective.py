"""The settings that an engine really runs with, never those that were asked for.

The worker extension reads layout, strides and backend where they are decided. /server_info is the API process's copy,
which knows neither, but has the scheduler's settings.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from e2e.base.errors import EngineAnswer
from e2e.base.event import Event, Record

#: key of the event -> path in /server_info
_FROM_SERVER = {
    "max_num_batched_tokens": ("scheduler_config", "max_num_batched_tokens"),
    "max_num_seqs": ("scheduler_config", "max_num_seqs"),
    "chunked_prefill": ("scheduler_config", "enable_chunked_prefill"),
    "async_scheduling": ("scheduler_config", "async_scheduling"),
    "enable_prefix_caching": ("cache_config", "enable_prefix_caching"),
    "block_size": ("cache_config", "block_size"),
    "num_blocks": ("cache_config", "num_gpu_blocks"),
    "kv_cache_dtype": ("cache_config", "cache_dtype"),
    "model": ("model_config", "model"),
    "dtype": ("model_config", "dtype"),
    "max_model_len": ("model_config", "max_model_len"),
    "enforce_eager": ("model_config", "enforce_eager"),
    "tensor_parallel": ("parallel_config", "tensor_parallel_size"),
    "kv_connector": ("kv_transfer_config", "kv_connector"),
    "kv_load_failure_policy": ("kv_transfer_config", "kv_load_failure_policy"),
}


#: What each rank has of its own.
_OF_A_RANK = ("device",)


class EngineView(Protocol):
    """What is asked of an engine; replay's client is one. All raise EngineAnswer when the engine has no such route."""

    def collective_rpc(self, method: str, *args: object) -> list: ...

    def server_info(self) -> dict[str, object]: ...

    def version(self) -> str: ...


def observe_engine(
    client: EngineView, engine: str, record: Record, *, build: Mapping[str, object] | None = None
) -> Event:
    """Records engine.config. The worker is asked first; only an engine without the extension is asked for /server_info,
    whose first call costs seconds (it collects the machine's environment). What nobody says is absent, and a note tells
    why. ``build``: what the adapter knows of the connector's own code, kept as "connector_build"."""
    effective: dict[str, object] = {"versions": {}, **({"connector_build": dict(build)} if build else {})}
    for read in (_version, _worker, _server):
        if read is _server and "max_num_batched_tokens" in effective:
            break
        try:
            found = read(client)
        except EngineAnswer as error:
            record("note", text=f"Part of the effective configuration can't be read: {error}", engine=engine)
            continue
        versions = {**_mapping(found.get("versions")), **_mapping(effective.get("versions"))}
        effective = {**found, **effective, "versions": versions}
    return record("engine.config", engine=engine, effective=effective)


def _version(client: EngineView) -> dict:
    return {"versions": {"vllm": client.version()}}


def _server(client: EngineView) -> dict:
    info = client.server_info()
    config = _mapping(info.get("vllm_config"))
    found: dict[str, object] = {}
    for key, path in _FROM_SERVER.items():
        value: object = config
        for name in path:
            value = _mapping(value).get(name)
        if value is not None:
            found[key] = value.removeprefix("torch.") if isinstance(value, str) else value
    environment, device = _mapping(info.get("vllm_env")), _mapping(config.get("device_config"))
    if "VLLM_BATCH_INVARIANT" in environment and "device_type" in device:
        asked = str(environment["VLLM_BATCH_INVARIANT"]).lower() in ("1", "true")
        found["batch_invariant"] = asked and device["device_type"] == "cuda"
    system = _mapping(info.get("system_env"))
    versions = {"torch": system.get("torch_version"), "python": str(system.get("python_version") or "").split(" ")[0]}
    return {**found, "versions": {name: version for name, version in versions.items() if version}}


def _worker(client: EngineView) -> dict:
    """What the first rank says, and where another one says something else."""
    told = [dict(_mapping(result)) for result in client.collective_rpc("rig_info")]
    if len(told) < 2:
        return told[0] if told else {}
    names = {name for table in told for name in table} - {*_OF_A_RANK}
    values = {name: [table.get(name) for table in told] for name in sorted(names)}
    differ = {name: of for name, of in values.items() if any(value != of[0] for value in of)}
    return {**told[0], "ranks": len(told), **({"ranks_differ": differ} if differ else {})}


def _mapping(value: object) -> Mapping[str, object]:
    return value if isinstance(value, Mapping) else {}
