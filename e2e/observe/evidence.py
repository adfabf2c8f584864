"""What the connector itself counts, read through the worker extension; independent of vLLM's counters."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from e2e.base.errors import EngineAnswer
from e2e.base.event import Record

#: How many of a connector's error lines are kept of one arm: the first ones, which the others often follow from.
ERRORS = 3
#: ``rpc(method, *args)`` -> one result per rank; EngineAnswer when the engine has no such method
Rpc = Callable[..., list]

#: vLLM's name for request X: ``cmpl-X-<choice>``, with eight random hex digits behind since 0.17
_ENGINE_ID = re.compile(r"^cmpl-(?P<request>.+?)-\d+(?:-[0-9a-f]{8})?$")


def rig_request(engine_request: str) -> str:
    """The rig's request id inside the engine's; unchanged when it has another form."""
    match = _ENGINE_ID.match(engine_request)
    return match["request"] if match else engine_request


class EvidenceWindow:
    """One engine's connector counters, arm by arm; used like ``MetricsWindow``.

    Calls ``rig_evidence(after_id)`` -> ``{"counters": {name: total}, "loads": [{"id", "request", ...}],
    "fired": {fault: total}, "errors": [line]}``
    (errors, optional: all so far) of each rank, or None without a connector. Of one without counters ``load_failures``
    alone is counted. An engine without the extension records nothing and is not asked again. An arm that raises records
    nothing.
    """

    def __init__(self, rpc: Rpc, record: Record, *, engine: str) -> None:
        self._rpc = rpc
        self._record = record
        self._engine = engine
        self._last_load: dict[int, int] = {}
        self._present = True

    @contextmanager
    def arm(self, *, cell: str | None, arm: str) -> Iterator[None]:
        before = self._read()
        yield
        after = self._read()
        if before is None or after is None:
            return
        place = {"engine": self._engine, "cell": cell, "arm": arm}
        for rank, (old, new) in enumerate(zip(before, after, strict=True)):
            self._told(place, old, new, {"rank": rank} if len(after) > 1 else {})

    def _told(self, place: dict, before: dict, after: dict, of: dict[str, int]) -> None:
        loads = [_load(load) for load in after["loads"]]
        errors = after.get("errors", [])[len(before.get("errors", [])) :][:ERRORS]
        self._record(
            "connector.evidence", **place, counters=_rise(before, after, "counters"), loads=loads,
            **({"errors": errors} if errors else {}), **of,
        )  # fmt: skip
        for fault, count in _rise(before, after, "fired").items():
            if count > 0:
                self._record("fault.fired", **place, fault=fault, count=count, **of)

    def loads(self) -> list[dict]:
        """Loads that the connector journaled since anyone looked; none where it keeps no journal."""
        return [_load(load) for evidence in self._read() or () for load in evidence["loads"]]

    def _read(self) -> list[dict] | None:
        """Of each rank; None where one has nothing to tell."""
        if not self._present:
            return None
        try:
            results = self._rpc("rig_evidence", min(self._last_load.values(), default=0))
        except EngineAnswer as error:
            self._present = False
            self._record("note", text=f"The connector's own counters can't be read: {error}", engine=self._engine)
            return None
        if not results or not all(isinstance(evidence, dict) for evidence in results):
            self._present = False
            return None
        for rank, evidence in enumerate(results):
            last = self._last_load.get(rank, 0)
            evidence["loads"] = [load for load in evidence.get("loads") or () if load["id"] > last]
            self._last_load[rank] = max((load["id"] for load in evidence["loads"]), default=last)
        return results


def _load(load: dict) -> dict:
    engine_request = str(load["request"])
    return {**load, "request": rig_request(engine_request), "engine_request": engine_request}


def _rise(before: dict, after: dict, key: str) -> dict[str, int]:
    old = before.get(key) or {}
    return {name: value - old.get(name, 0) for name, value in (after.get(key) or {}).items()}
