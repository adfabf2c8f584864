"""What real Maru says of its loads: operation counters of its handler (MARU_STAT=1) and the lines of its log.

Neither HTTP status, nor vLLM's hit counters, nor the line "KV hit" prove that KV was loaded: all rise when a load fails
(docs/maru.md#evidence-of-a-load). Bytes that the handler retrieved do, and so does a line that betrays a failure.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from e2e.base.errors import EngineTimeout
from e2e.connectors.maru.rpc import MaruServer
from e2e.waits import settled

#: Lines of maru_vllm or its handler that betray a load or a store that failed, though the answer came with HTTP 200.
FAILED_LOAD = re.compile(r"load miss|aborting (?:load|inline)|load failed|recomput|activation failed", re.IGNORECASE)
FAILED_STORE = re.compile(r"Maru save error|packed save error", re.IGNORECASE)
_MARU_LINE = re.compile(r"\bMaru\b|maru_vllm|maru_handler")
_PREFIX = re.compile(r"^(?:\([^)]*pid=\d+\) )?(?:[A-Z]+ \d\d-\d\d [\d:.]+ \[[^\]]*\] )?")
_HIT = re.compile(r"Maru KV hit: req=(?P<request>\S+?), (?P<chunks>\d+) chunks \((?P<tokens>\d+) tokens\)")
_LOADED = re.compile(
    r"Maru: (?:(?P<packed>packed-loaded)|(?P<plain>loaded)|deferred-load scheduled|"
    r"deferred retrieve ready for (?P<overlap>layerwise-overlap|packed-layerwise) load)\b"
)
_LAYERS = re.compile(r"(?P<layers>\d+) layers x (?P<chunks>\d+) chunks")
_REQUEST = re.compile(r"for req (?P<request>\S+)")
_PLACEMENT = re.compile(r"\((?P<by>kernel|fallback)\)")
#: Handlers report once a second; counters that stay the same for longer than that are complete.
_STILL_S, _LIMIT_S, _STEP_S = 1.5, 8.0, 0.3
_RETRIEVE, _STORE = ("retrieve", "batch_retrieve"), ("store", "batch_store")
_ITEM_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}


@dataclass
class Load:
    """One request's load as its log lines tell it; ``lines`` counts those that say that something was loaded."""

    request: str
    tokens: int
    settings: dict[str, str]
    lines: int = 0
    layers: int | None = None
    failed: bool = False

    def as_json(self, number: int) -> dict[str, object]:
        told = {"id": number, "request": self.request, "tokens": self.tokens, "failed": self.failed, **self.settings}
        return told | ({} if self.layers is None else {"layers": self.layers}) | {"places": self.lines}


@dataclass
class LogEvidence:
    """``failed``: name -> lines that betray a failure; ``errors``: those lines, without what vLLM puts in front."""

    loads: list[Load] = field(default_factory=list)
    failed: dict[str, int] = field(default_factory=lambda: {"load_failures": 0, "store_failures": 0})
    errors: list[str] = field(default_factory=list)


def read_log(lines: Iterator[str], *, defaults: Mapping[str, str], layers: int | None = None) -> LogEvidence:
    """``defaults``: settings of a load that no line contradicts. ``layers`` of the model: a load that says it placed
    fewer was aborted. A line without a request's name belongs to the last request that was looked up."""
    told, by_request = LogEvidence(), {}
    last: Load | None = None
    for line in lines:
        if hit := _HIT.search(line):
            # the scheduler asks again for a request that had to wait: that is still one load
            last = by_request.get(hit["request"]) or Load(hit["request"], int(hit["tokens"]), dict(defaults))
            if hit["request"] not in by_request:
                told.loads.append(last)
            by_request[hit["request"]] = last
            continue
        if not _MARU_LINE.search(line):
            continue
        named = _REQUEST.search(line)
        load = by_request.get(named["request"], last) if named else last
        if loaded := _LOADED.search(line):
            if load is not None:
                _read_load(load, line, loaded, layers)
        elif FAILED_LOAD.search(line):
            told.failed["load_failures"] += 1
            told.errors.append(_said(line))
            if load is not None:
                load.failed = True
        elif FAILED_STORE.search(line):
            told.failed["store_failures"] += 1
            told.errors.append(_said(line))
    return told


def _said(line: str) -> str:
    """The line without process, level, time and place, one line of at most 300 characters."""
    return _PREFIX.sub("", line).strip()[:300]


def _read_load(load: Load, line: str, loaded: re.Match[str], layers: int | None) -> None:
    load.lines += 1
    if loaded["packed"] or "(packed" in line or loaded["overlap"] == "packed-layerwise":
        load.settings["storage_format"] = "chunkwise"
    elif loaded["plain"]:
        load.settings["storage_format"] = "layerwise"
    if loaded["overlap"]:
        load.settings |= {"load": "async", "overlap": "on"}
    elif "deferred-load" in loaded[0]:
        load.settings |= {"load": "async", "overlap": "off"}
    else:
        load.settings |= {"load": "sync", "overlap": "off"}
    if placed := _PLACEMENT.search(line):
        load.settings["placement"] = "kernel" if placed["by"] == "kernel" else "index"
    if counted := _LAYERS.search(line):
        load.layers = int(counted["layers"])
        load.failed = load.failed or (layers is not None and load.layers < layers)


def counters(operations: Mapping[str, Mapping[str, float]], *, bytes_per_token: int | None) -> dict[str, int]:
    """``hit_tokens`` from the bytes that were retrieved, since a batch counts as one hit whatever its size. A batch
    that was found in part is no hit and no miss to Maru; here it is a miss."""
    found: dict[str, int] = {}
    retrieved = [operations[name] for name in _RETRIEVE if name in operations]
    if retrieved:
        loaded = int(sum(op["total_bytes"] for op in retrieved))
        found["loaded_bytes"] = loaded
        found["miss_chunks"] = int(sum(op["count"] - op["hit_count"] for op in retrieved))
        if bytes_per_token:
            found["hit_tokens"] = loaded // bytes_per_token
    stored = [operations[name] for name in _STORE if name in operations]
    if stored:
        found["stored_bytes"] = int(sum(op["total_bytes"] for op in stored))
    return found


def bytes_per_token(effective: Mapping[str, object]) -> int | None:
    """Of all layers, K and V, on one rank; None when the worker didn't tell."""
    layers, heads, size = (effective.get(name) for name in ("num_layers", "heads", "head_size"))
    item = _ITEM_BYTES.get(str(effective.get("dtype")))
    if not (isinstance(layers, int) and isinstance(heads, int) and isinstance(size, int) and item):
        return None
    return 2 * layers * heads * size * item


class MaruWitness:
    """Takes the place of the worker extension in ``EvidenceWindow``: one engine's counters and loads so far.

    ``log_path`` None (an attached engine): no loads are told, so the judge finds them unknown. A server that doesn't
    answer gives no counters, which the judge finds missing; the request that hung on it tells why.
    """

    #: texts of ``[connector.witness]`` that can't be left out
    NEEDS = ("address", "instance")

    def __init__(
        self, *, address: str, instance: str, log_path: Path | None, effective: Mapping[str, object], **defaults: str
    ) -> None:
        self._server = MaruServer(address)
        self._instance, self._log_path, self._defaults = instance, log_path, defaults
        self._bytes_per_token = bytes_per_token(effective)
        layers = effective.get("num_layers")
        self._layers = layers if isinstance(layers, int) else None

    def __call__(self, method: str, after: int) -> list[dict[str, object]]:
        totals = self._settled()
        told = read_log(self._lines(), defaults=self._defaults, layers=self._layers)
        loads = [load.as_json(number) for number, load in enumerate(told.loads, start=1) if number > after]
        return [{"counters": {**totals, **told.failed}, "loads": loads, "errors": told.errors}]

    def _settled(self) -> dict[str, int]:
        def read() -> dict[str, int]:
            return counters(self._server.operations(self._instance), bytes_per_token=self._bytes_per_token)

        try:
            return settled(read, still_s=_STILL_S, limit_s=_LIMIT_S, every_s=_STEP_S)
        except EngineTimeout:
            return {}

    def _lines(self) -> Iterator[str]:
        if self._log_path is None:
            return
        with self._log_path.open(encoding="utf-8", errors="replace") as log:
            yield from log
