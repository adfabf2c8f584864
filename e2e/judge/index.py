"""Sorts a recording's events by what they belong to. Nothing here judges, and nothing raises on odd values."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field

from e2e.base.event import Event

Data = Mapping[str, object]


@dataclass
class Engine:
    """One engine start. Positions are indices in the recording."""

    name: Hashable
    key: Hashable = None
    role: Hashable = None
    cell: Hashable = None
    attempt: int = 0
    started: int = -1
    effective: object = None
    failed: list[tuple[int, Data]] = field(default_factory=list)
    baseline_begun: bool = False
    baseline_ended: bool = False


class Index:
    """``arms``: (engine, cell, arm) -> kind -> data in order. ``requests``: request id -> data of its end.
    ``cells`` keeps the order in which cells were first named. ``acts``: what was done to servers and stores of a cell.
    """

    def __init__(self, events: Iterable[Event]) -> None:
        self.engines: dict[Hashable, Engine] = {}
        self.cells: dict[Hashable, None] = {}
        self.plans: dict[tuple[Hashable, int], Data] = {}
        self.begins: dict[tuple[Hashable, int], list[tuple[int, Hashable]]] = defaultdict(list)
        self.ends: dict[tuple[Hashable, int], list[tuple[int, Hashable]]] = defaultdict(list)
        self.arms: dict[tuple[Hashable, Hashable, Hashable], dict[str, list[Data]]] = {}
        self.acts: dict[Hashable, list[tuple[int, str, Data]]] = defaultdict(list)
        self.done: dict[Hashable, list[Data]] = defaultdict(list)
        self.failed: dict[Hashable, list[Data]] = defaultdict(list)
        self.digest_values: dict[Hashable, object] = {}
        for position, event in enumerate(events):
            self._add(position, event.kind, event.data)

    def _add(self, position: int, kind: str, data: Data) -> None:
        if "cell" in data and data["cell"] is not None:
            self.cells.setdefault(hashable(data["cell"]))
        if kind.startswith("engine.") or kind.startswith("baseline."):
            self._add_engine(position, kind, data)
        elif kind == "plan.cell":
            self.plans[hashable(data["cell"]), number(data["attempt"])] = data
        elif kind in ("cell.begin", "cell.end"):
            where = self.begins if kind == "cell.begin" else self.ends
            where[hashable(data["cell"]), number(data["attempt"])].append((position, hashable(data["engine"])))
            self.engine(data["engine"]).attempt = number(data["attempt"])
        elif kind == "request.done":
            self.done[hashable(data["request"])].append(data)
        elif kind == "request.failed":
            self.failed[hashable(data["request"])].append(data)
        elif kind.startswith("nemesis.") or kind == "store.empty":
            self.acts[hashable(data["cell"])].append((position, kind, data))
        elif "arm" in data:
            key = (hashable(data["engine"]), hashable(data["cell"]), hashable(data["arm"]))
            self.arms.setdefault(key, defaultdict(list))[kind].append(data)
            if kind == "digest.taken" and data["values"] is not None and "content" in data:
                self.digest_values[hashable(data["content"])] = data["values"]

    def _add_engine(self, position: int, kind: str, data: Data) -> None:
        engine = self.engine(data["engine"])
        if "attempt" in data:
            engine.attempt = number(data["attempt"])
            engine.key = hashable(data["engine_key"])
        if kind == "engine.start":
            engine.role, engine.started = hashable(data["role"]), position
            engine.cell = hashable(data.get("cell"))
        elif kind == "engine.config":
            engine.effective = data["effective"]
        elif kind == "engine.failed":
            engine.failed.append((position, data))
        elif kind == "baseline.begin":
            engine.baseline_begun = True
        elif kind == "baseline.end":
            engine.baseline_ended = True

    def engine(self, name: object) -> Engine:
        return self.engines.setdefault(hashable(name), Engine(hashable(name)))

    def attempt_of(self, cell: Hashable) -> int:
        """The last attempt in which the cell ended, else the last one that names it; 0 when none does."""
        ended = [attempt for (name, attempt) in self.ends if name == cell]
        named = [attempt for table in (self.begins, self.plans) for (name, attempt) in table if name == cell]
        return max(ended or named, default=0)

    def of_key(self, key: Hashable, role: str, attempt: int) -> list[Engine]:
        """Lent engines of one key, role and attempt in the order of their starts."""
        found = [e for e in self.of_cell(None, role, attempt) if e.key == key]
        return sorted(found, key=lambda engine: engine.started)

    def of_cell(self, cell: Hashable, role: str, attempt: int) -> list[Engine]:
        """Those that a cell started for a site of its program, in the order of their starts."""
        found = [e for e in self.engines.values() if (e.cell, e.role, e.attempt) == (cell, role, attempt)]
        return sorted(found, key=lambda engine: engine.started)


def hashable(value: object) -> Hashable:
    return value if isinstance(value, (str, int, float, type(None))) else repr(value)


def number(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 0
