"""Digests of KV, taken in the worker and fetched after every arm; see ``inside/probe``."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from e2e.base.errors import EngineAnswer
from e2e.base.event import Record
from e2e.observe.evidence import Rpc, rig_request


class DigestWindow:
    """One engine's digests, arm by arm; used like ``EvidenceWindow``.

    Equal values are written once: each ``digest.taken`` has ``content``, a hash of its values, and ``values`` is null
    where an earlier event of this engine has the same content. A request that the rig did not send is recorded too: the
    judge wants to know; not so of an engine ``in_use``, where it is others' own affair. Also records ``fault.fired``
    for faults planted around a connector.
    """

    def __init__(self, rpc: Rpc, record: Record, *, engine: str, in_use: bool = False) -> None:
        self._rpc, self._record, self._engine, self._in_use = rpc, record, engine, in_use
        self._last: dict[int, int] = {}
        self._known: set[str] = set()
        self.on = False

    def start(self) -> bool:
        """Turns the probe on in every rank. False, and a note that tells why, when the engine can't."""
        self.on = self._ask("rig_probe", True) is not None
        return self.on

    def stop(self) -> None:
        """For good: hashing takes time, also of requests that nobody fetches digests of."""
        if self.on:
            self._ask("rig_probe", False)
        self.on = False

    @contextmanager
    def arm(self, *, cell: str | None, arm: str, plant: str | None = None) -> Iterator[None]:
        """Around one arm. ``plant``: a fault to plant around the connector for this arm, by its name in the catalogue.
        An arm that raises records nothing."""
        if not self.on and plant is None:
            yield
            return
        place = {"engine": self._engine, "cell": cell, "arm": arm}
        before = self._fetch()  # drops what a warm-up left
        if plant is not None:
            self._ask("rig_plant", plant)
        try:
            yield
        finally:
            if plant is not None:
                self._ask("rig_plant", None)
        after = self._fetch()
        for told in after:
            for row in told["rows"]:
                self._taken(place, row)
        spent = [new["cost_s"] - old["cost_s"] for old, new in zip(before, after, strict=False)]
        self._record("digest.cost", **place, cost_s=round(max(spent, default=0.0), 6))
        for rank, (old, new) in enumerate(zip(before, after, strict=False)):
            for fault, count in new["fired"].items():
                if count > old["fired"].get(fault, 0):
                    fired = count - old["fired"].get(fault, 0)
                    of = {"rank": rank} if len(after) > 1 else {}
                    self._record("fault.fired", **place, fault=fault, count=fired, **of)

    def _fetch(self) -> list[dict]:
        """Of each rank its new rows, fired counts and seconds spent, the latter two since the probe was turned on.
        Each rank numbers its own rows."""
        results = self._ask("rig_digests", min(self._last.values(), default=0)) or []
        told = []
        for rank, result in enumerate(results):
            rows = [row for row in result["rows"] if row["id"] > self._last.get(rank, 0)]
            self._last[rank] = max((row["id"] for row in rows), default=self._last.get(rank, 0))
            told.append({"rows": rows, "fired": result.get("fired", {}), "cost_s": float(result.get("cost_s", 0.0))})
        return told

    def _taken(self, place: Mapping[str, object], row: Mapping[str, object]) -> None:
        engine_request = str(row["request"])
        request = rig_request(engine_request)
        if self._in_use and not request.startswith(f"{self._engine}."):
            return
        values = str(row["values"])
        content = hashlib.blake2b(values.encode(), digest_size=12).hexdigest()
        known = content in self._known
        self._known.add(content)
        where = {**place, "request": request, "prompt": prompt_of(request)}
        rest = {key: value for key, value in row.items() if key not in ("id", "sample")}
        rest |= {"engine_request": engine_request, "values": None if known else values, "content": content}
        self._record("digest.taken", **{**rest, **where})
        if row.get("sample") is not None:
            read = {key: row[key] for key in ("rank", "nth") if key in row}
            self._record("digest.sample", **{**row["sample"], **read, **where})

    def _ask(self, method: str, *args: object) -> list | None:
        try:
            results = self._rpc(method, *args)
        except EngineAnswer as error:
            self._record("note", text=f"Digests can't be read: {error}", engine=self._engine)
            return None
        errors = [result["error"] for result in results if isinstance(result, dict) and "error" in result]
        if errors or not results:
            why = errors[0] if errors else "no worker answered."
            self._record("note", text=f"{method} was refused: {why}", engine=self._engine)
            return None
        return results


def prompt_of(request: str) -> int | None:
    """The prompt's index in a request id of ours, ``<engine>.<cell>.<arm>.<prompt>.<8 hex digits>``."""
    parts = request.rsplit(".", 2)
    return int(parts[1]) if len(parts) == 3 and parts[1].isdigit() else None
