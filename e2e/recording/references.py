"""What an event may speak of: engines, cells, requests, arms and attempts that an earlier one has introduced.

A recording is written in the order in which things happen, so a name out of nowhere is damage; judged, it would only be
evidence that nobody looks at.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from e2e.base.event import Event

#: Last word -> first word, and what both must say alike.
_ENDS = {
    "cell.end": ("cell.begin", ("cell", "engine", "attempt")),
    "baseline.end": ("baseline.begin", ("engine", "engine_key", "attempt")),
    "arm.end": ("arm.begin", ("engine", "cell", "arm")),
    "nemesis.end": ("nemesis.begin", ("cell", "what", "how", "target")),
    "request.done": ("request.sent", ("request",)),
    "request.failed": ("request.sent", ("request",)),
}
_BEGINS = {begin: keys for begin, keys in _ENDS.values()}


class References:
    """Takes the events of one recording in order."""

    def __init__(self) -> None:
        self._attempt = 0
        self._last_ns = 0
        #: engine -> its key; cell -> the key of the engines that it runs on
        self._engines: dict[object, object] = {}
        self._cells: dict[object, object] = {}
        #: engine key -> sites of its programs, by name
        self._sites: dict[object, set[object]] = defaultdict(lambda: {"connector", "baseline"})
        self._open: set[tuple[object, ...]] = set()
        self._requests: set[object] = set()

    def add(self, event: Event) -> None:
        """Raises ValueError saying what was never introduced."""
        kind, data = event.kind, event.data
        self._time(event)
        if kind == "engine.start":
            if data["role"] not in self._sites[data["engine_key"]]:
                raise ValueError(f"is of a site {data['role']!r} that no program has")
            self._engines[data["engine"]] = data["engine_key"]
        elif kind == "plan.cell":
            self._cells[data["cell"]] = data["engine_key"]
            self._sites[data["engine_key"]] |= set(_sites(data.get("program")))
            if data.get("program") is None and data.get("deterministic") != (
                data["settings"].get("concurrency", 1) == 1
            ):
                raise ValueError("says two things of whether it was one request at a time")
        if kind != "note":
            self._names(data)
        self._span(kind, data)

    def _names(self, data: Mapping[str, object]) -> None:
        engine, cell = data.get("engine"), data.get("cell")
        if engine is not None and engine not in self._engines:
            raise ValueError(f"names the engine {engine!r}, which was never started")
        if cell is not None and cell not in self._cells:
            raise ValueError(f"names the cell {cell!r}, which was never planned")
        keys = {self._cells.get(cell), self._engines.get(engine), data.get("engine_key")} - {None}
        if len(keys) > 1:
            raise ValueError(f"has the engine keys {' and '.join(sorted(map(repr, keys)))}")

    def _time(self, event: Event) -> None:
        if event.kind == "run.begin":
            if event["attempt"] != self._attempt + 1:
                raise ValueError(f"begins attempt {event['attempt']} after {self._attempt}")
            self._attempt = event["attempt"]
        elif event.t_ns < self._last_ns:
            raise ValueError("happened before the line above it")
        elif self._attempt and event.data.get("attempt", self._attempt) != self._attempt:
            raise ValueError(f"belongs to attempt {event['attempt']} amid attempt {self._attempt}")
        self._last_ns = event.t_ns

    def _span(self, kind: str, data: Mapping[str, object]) -> None:
        if kind in _BEGINS:
            key = (kind, *(data[name] for name in _BEGINS[kind]))
            if kind == "request.sent":
                if data["request"] in self._requests:
                    raise ValueError(f"sends the request {data['request']!r} once more")
                self._requests.add(data["request"])
            self._open.add(key)
        elif kind in _ENDS:
            begin, names = _ENDS[kind]
            key = (begin, *(data[name] for name in names))
            if key not in self._open:
                raise ValueError(f"ends what did not begin: {', '.join(str(data[name]) for name in names)}")
            self._open.remove(key)


def _sites(program: object) -> list[str]:
    """Names; a program that is none is the judge's to name."""
    sites = program.get("sites") if isinstance(program, Mapping) else None
    names = [site.get("name") for site in sites if isinstance(site, Mapping)] if isinstance(sites, list) else []
    return [name for name in names if isinstance(name, str)]
