"""The embedded connector's configuration: Maru's keys for ``kv_connector_extra_config``, read strictly.

Maru ignores unknown keys and takes the string "false" for true; here both are refused, since a setting that silently
does nothing makes a test that proves nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace

from e2e.base.fault import parted
from e2e.base.pace import Pace, pace_of
from e2e.base.spelling import hint
from e2e.inside import faults

#: Maru's keys that mean nothing for a double without servers: taken, named in the log, without effect.
INERT = ("maru_server_url", "maru_instance_id", "maru_eager_map", "maru_chunk_size", "maru_log_timing")
#: Maru's keys for what the double does not emulate; the value that is harmless is taken.
REFUSED_UNLESS: dict[str, object] = {
    "maru_storage_backend": "cxl",
    "maru_load_admission_window": 0,
}
RENAMED = {
    "maru_enable_deferred_loading": "maru_async_load",
    "maru_enable_layerwise_overlap": "maru_overlap_load_with_compute",
    "maru_enable_write_behind": "maru_async_store",
}
USED = (
    "maru_pool_size", "maru_kv_chunk_tokens", "maru_use_layerwise", "maru_async_load", "maru_async_store",
    "maru_overlap_load_with_compute", "maru_overlap_release_after_layers",
    "embedded_pool_dir", "embedded_pool_path", "embedded_pool_offset", "embedded_pool_numa", "embedded_index",
    "embedded_index_limit_s", "embedded_evict", "embedded_pool_flush", "embedded_pool_pace", "embedded_placement",
    "embedded_pace_s", "embedded_slow_s", "embedded_fault",
)  # fmt: skip
_ADDRESS = re.compile(r"[^\s:{}]+:[0-9]{1,5}")
_SIZE = re.compile(r"^\s*(\d+(?:\.\d+)?)\s*([KMGT]?)I?B?\s*$", re.IGNORECASE)


@dataclass(frozen=True)
class RequestSettings:
    """How one request stores and loads. ``pace_s`` replaces the engine's own (see EmbeddedConfig) for this request.
    What is stored for one ``cell`` serves no other."""

    storage_format: str = "chunkwise"
    load: str = "sync"
    overlap: bool = False
    placement: str = "index"
    release_after_layers: int = 1
    cell: str = ""
    fault: str = ""
    pace_s: float | None = None

    def __post_init__(self) -> None:
        for name, allowed in {"storage_format": ("chunkwise", "layerwise"), "load": ("sync", "async")}.items():
            if getattr(self, name) not in allowed:
                raise ValueError(f"{name} is {getattr(self, name)!r}; use {' or '.join(allowed)}.")
        if not isinstance(self.overlap, bool):
            raise ValueError(f"overlap is {self.overlap!r}; use true or false.")
        if self.overlap and self.load != "async":
            raise ValueError("overlap needs load=async (maru_async_load), as in Maru.")
        faults.get(parted(self.fault)[0])
        if not isinstance(self.release_after_layers, int) or self.release_after_layers < 1:
            raise ValueError(f"release_after_layers is {self.release_after_layers!r}; use a whole number from 1.")
        pace = self.pace_s
        if pace is not None and (isinstance(pace, bool) or not isinstance(pace, int | float) or not 0 <= pace <= 60):
            raise ValueError(f"pace_s is {pace!r}; use seconds from 0 to 60.")

    @property
    def in_key(self) -> dict[str, object]:
        """What keeps the chunks of one request from another's."""
        return {"storage_format": self.storage_format, "cell": self.cell, "fault": self.fault}

    def on_rank(self, rank: int) -> RequestSettings:
        """As one rank takes them: a fault planted on another one alone is none here."""
        fault, only = parted(self.fault)
        return replace(self, fault=fault if only in (None, rank) else "")

    def override(self, params: Mapping[str, object] | None) -> RequestSettings:
        """These defaults with a request's ``kv_transfer_params``; ValueError for anything unknown."""
        if not params:
            return self
        known = {field.name for field in fields(self)}
        unknown = [key for key in params if key not in known]
        if unknown:
            raise ValueError(
                f"kv_transfer_params has the unknown key {unknown[0]!r}; known: {', '.join(sorted(known))}."
            )
        return replace(self, **params)


@dataclass(frozen=True)
class EmbeddedConfig:
    """``pool_size`` in bytes; ``pace_s`` is the longest time in seconds for which the loader of an overlapped load
    waits for the forward to reach the layers that are still missing (0: never waits). ``index``: host:port of the
    pool's index, empty for one of this engine's own; it has ``index_limit_s`` seconds for an answer. ``evict``: may a
    full pool drop what was not used for the longest time? ``async_store``: are chunks stored beside the compute?
    ``slow_s``: what moves a chunk beside the compute takes so many seconds longer, so that it is sure to be met under
    way. ``offset``: where in its file or device the pool begins, in bytes. ``numa``: the node in whose memory it lies,
    None: of whoever touches it first. ``flush``: is the pool in memory whose users may not see each other's caches?
    ``link``: the pace at which it is read and written, None: its own."""

    pool_dir: str
    pool_path: str
    pool_size: int
    chunk_tokens: int
    pace_s: float
    defaults: RequestSettings
    inert: tuple[str, ...]
    index: str = ""
    index_limit_s: float = 5.0
    evict: bool = False
    async_store: bool = False
    slow_s: float = 0.0
    offset: int = 0
    numa: int | None = None
    flush: bool = False
    link: Pace | None = None


def parse(extra: Mapping[str, object], *, block_size: int, on_gpu: bool = False) -> EmbeddedConfig:
    """Reads ``kv_connector_extra_config``. ValueError, one sentence, for a key or value that can't be used. ``on_gpu``:
    there stores go on beside the compute unless it is told otherwise, since a step would wait for the link."""
    values = {}
    for key, value in extra.items():
        key = RENAMED.get(key, key)
        if key in REFUSED_UNLESS:
            if value != REFUSED_UNLESS[key]:
                raise ValueError(f"{key}={value!r} is not emulated by the embedded connector; leave it out.")
        elif key in USED or key in INERT:
            values[key] = value
        else:
            meant = hint(key, sorted([*USED, *INERT, *REFUSED_UNLESS]))
            raise ValueError(f"kv_connector_extra_config has the unknown key {key!r}; {meant}")
    if not values.get("embedded_pool_dir"):
        raise ValueError("embedded_pool_dir is missing: name a folder that scheduler and worker can both write to.")
    chunk = _whole(values, "maru_kv_chunk_tokens", 256)
    rounded = max(chunk // block_size, 1) * block_size  # Maru rounds down to whole blocks, at least one
    overlap = _flag(values, "maru_overlap_load_with_compute")
    defaults = RequestSettings(
        storage_format="layerwise" if _flag(values, "maru_use_layerwise") else "chunkwise",
        load="async" if _flag(values, "maru_async_load") else "sync",
        overlap=overlap,
        placement=str(values.get("embedded_placement", "index")),
        release_after_layers=_whole(values, "maru_overlap_release_after_layers", 1),
        fault=str(values.get("embedded_fault", "")),
    )
    folder = str(values["embedded_pool_dir"])
    return EmbeddedConfig(
        pool_dir=folder,
        pool_path=str(values.get("embedded_pool_path") or f"{folder}/region"),
        pool_size=size_bytes(values.get("maru_pool_size", 1 << 30)),
        chunk_tokens=rounded,
        pace_s=float(values.get("embedded_pace_s", 1.0)),
        defaults=defaults,
        inert=tuple(key for key in values if key in INERT),
        index=_address(values.get("embedded_index", "")),
        index_limit_s=_seconds(values, "embedded_index_limit_s", 5.0),
        evict=_flag(values, "embedded_evict"),
        async_store=_flag(values, "maru_async_store", default=on_gpu),
        slow_s=_seconds(values, "embedded_slow_s", 0.0),
        flush=_flag(values, "embedded_pool_flush"),
        link=_link(values.get("embedded_pool_pace")),
        offset=size_bytes(values["embedded_pool_offset"]) if values.get("embedded_pool_offset") else 0,
        numa=_whole(values, "embedded_pool_numa", 0, least=0) if "embedded_pool_numa" in values else None,
    )


def size_bytes(value: object) -> int:
    """An int of bytes, or Maru's ``<float>[K|M|G|T][B]`` with base 1024."""
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return value
    match = _SIZE.match(str(value))
    if not match or isinstance(value, bool):
        raise ValueError(f"{value!r} is no size; use bytes or a number with K, M, G or T, such as 2G.")
    return int(float(match[1]) * 1024 ** " KMGT".index(match[2].upper() or " "))


def _address(value: object) -> str:
    if not isinstance(value, str) or (value and not _ADDRESS.fullmatch(value)):
        raise ValueError(f"embedded_index is {value!r}; give the index's address as host:port, or leave it out.")
    return value


def _link(value: object) -> Pace | None:
    if value is None:
        return None
    if not isinstance(value, str):
        raise ValueError(f'embedded_pool_pace is {value!r}; write a bandwidth and a latency, as "20GB/s,300ns".')
    try:
        return pace_of(value)
    except ValueError as error:
        raise ValueError(f"embedded_pool_pace: {error}") from None


def _seconds(values: Mapping[str, object], key: str, default: float) -> float:
    value = values.get(key, default)
    wrong = isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 60
    if wrong or (value == 0 and default):
        raise ValueError(f"{key} is {value!r}; use seconds up to 60, such as 2.")
    return float(value)


def _flag(values: Mapping[str, object], key: str, *, default: bool = False) -> bool:
    value = values.get(key, default)
    if not isinstance(value, bool):
        raise ValueError(f"{key} is {value!r}; use true or false without quotes (Maru would take any string for true).")
    return value


def _whole(values: Mapping[str, object], key: str, default: int, *, least: int = 1) -> int:
    value = values.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ValueError(f"{key} is {value!r}; use a whole number from {least}.")
    return value
