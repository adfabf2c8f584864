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
    (errors, optional: all so far), or None from a connector without counters. An engine without the extension records
    nothing and is not asked again. Of several ranks the first one is read. An arm that raises records nothing.
    """

    def __init__(self, rpc: Rpc, record: Record, *, engine: str) -> None:
        self._rpc = rpc
        self._record = record
        self._engine = engine
        self._last_load = 0
        self._present = True

    @contextmanager
    def arm(self, *, cell: str | None, arm: str) -> Iterator[None]:
        before = self._read()
        yield
        after = self._read()
        if before is None or after is None:
            return
        place = {"engine": self._engine, "cell": cell, "arm": arm}
        loads = [_load(load) for load in after["loads"]]
        errors = after.get("errors", [])[len(before.get("errors", [])) :][:ERRORS]
        self._record(
            "connector.evidence", **place, counters=_rise(before, after, "counters"), loads=loads,
            **({"errors": errors} if errors else {}),
        )  # fmt: skip
        for fault, count in _rise(before, after, "fired").items():
            if count > 0:
                self._record("fault.fired", **place, fault=fault, count=count)

    def loads(self) -> list[dict]:
        """Loads that the connector journaled since anyone looked; none where it keeps no journal."""
        evidence = self._read()
        return [_load(load) for load in evidence["loads"]] if evidence else []

    def _read(self) -> dict | None:
        if not self._present:
            return None
        try:
            results = self._rpc("rig_evidence", self._last_load)
        except EngineAnswer as error:
            self._present = False
            self._record("note", text=f"The connector's own counters can't be read: {error}", engine=self._engine)
            return None
        evidence = results[0] if results else None
        if not isinstance(evidence, dict):
            self._present = False
            return None
        evidence.setdefault("loads", [])
        self._last_load = max([self._last_load, *(load["id"] for load in evidence["loads"])])
        return evidence


def _load(load: dict) -> dict:
    engine_request = str(load["request"])
    return {**load, "request": rig_request(engine_request), "engine_request": engine_request}


def _rise(before: dict, after: dict, key: str) -> dict[str, int]:
    old = before.get(key) or {}
    return {name: value - old.get(name, 0) for name, value in (after.get(key) or {}).items()}
