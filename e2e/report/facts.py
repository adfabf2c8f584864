"""What a report says beside verdicts, derived from the recording: the run, its engines, what was left out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from types import MappingProxyType

from e2e.base.event import Event
from e2e.base.exhibit import Exhibit
from e2e.report.overhead import overhead
from e2e.report.paced import paced


@dataclass(frozen=True)
class CellTime:
    """``began``: wall time, ISO 8601, None where it can't be told. ``seconds`` to its end, or to the last that was seen
    of it."""

    began: str | None
    seconds: float


@dataclass(frozen=True)
class EngineLog:
    """Where one engine start logged to, and the end of it where the engine failed."""

    path: str
    tail: str


@dataclass(frozen=True)
class RunFacts:
    """``run`` and ``engines`` as they stand in report.json; times in seconds. ``times``: (cell, attempt) -> when it
    ran. ``logs``: name of an engine start -> its log. ``untold``: scenarios that no cell played; None where the
    recording knows of none. ``served``: where it might be more or less, what was. ``paced``: what was reached of a
    pool's pace. ``exhibits``: (cell, attempt) -> what its verdict rests on, of the cells of which that is to be
    shown."""

    run: Mapping[str, object]
    engines: Sequence[Mapping[str, object]]
    invalid: Sequence[Mapping[str, object]]
    notes: Sequence[str]
    times: Mapping[tuple[str, object], CellTime] = field(default_factory=dict)
    logs: Mapping[str, EngineLog] = field(default_factory=dict)
    untold: Sequence[str] | None = None
    served: Sequence[str] = ()
    paced: Sequence[str] = ()
    exhibits: Mapping[tuple[str, int], Exhibit] = field(default_factory=dict)

    @property
    def ended(self) -> bool:
        """Did the last attempt come to its end? A recording without any attempt has none to end."""
        return all(attempt["ended"] for attempt in self.run["attempts"][-1:])

    @property
    def settings(self) -> Mapping[str, object]:
        settings = self.run.get("settings")
        return settings if isinstance(settings, Mapping) else {}


def facts(events: Sequence[Event], exhibits: Mapping[tuple[str, int], Exhibit] = MappingProxyType({})) -> RunFacts:
    return RunFacts(
        run=_run(events), engines=_engines(events), invalid=_invalid(events), notes=_notes(events),
        times=_times(events), logs=_logs(events), untold=_untold(events),
        served=_served(events), paced=paced(events), exhibits=exhibits,
    )  # fmt: skip


def _run(events: Sequence[Event]) -> dict[str, object]:
    """Of the first attempt, but for ``attempts``: each with its wall time at the start, its length, and whether it
    came to its end. The length of one that did not is that to its last event."""
    attempts: list[dict[str, object]] = []
    begin = last = 0
    first: Mapping[str, object] = {}
    for event in events:
        if event.kind == "run.begin":
            first = first or event.data
            begin = event.t_ns
            attempts.append({"attempt": event["attempt"], "began": event["wall_time"], "seconds": 0.0, "ended": False})
        if not attempts:
            continue
        last = max(event.t_ns, begin)
        attempts[-1]["seconds"] = round((last - begin) / 1e9, 3)
        if event.kind == "run.end":
            attempts[-1]["ended"] = True
    names = ("run_id", "command", "program", "folder", "versions", "machine", "settings")
    run: dict[str, object] = {name: first.get(name) for name in names}
    seconds = round(sum(float(a["seconds"]) for a in attempts), 3)
    return run | {
        "began": first.get("wall_time"),
        "seconds": seconds,
        "floor": overhead(events, total_s=seconds),
        "attempts": attempts,
    }


def _engines(events: Sequence[Event]) -> list[dict[str, object]]:
    """One entry per engine key and role; ``start_s`` and ``stop_s`` are sums over its starts."""
    of: dict[object, dict[str, object]] = {}
    table: dict[str, dict[str, object]] = {}
    for event in events:
        data = event.data
        if event.kind == "engine.start":
            name = f"{data['engine_key']}/{data['role']}"
            fresh = {"key": data["engine_key"], "role": data["role"], "starts": 0, "start_s": 0.0, "stop_s": 0.0,
                     "failures": 0, "versions": {}}  # fmt: skip
            of[str(data["engine"])] = table.setdefault(name, fresh)
            table[name]["starts"] += not str(data["launcher"]).startswith("shared")
        entry = of.get(str(data.get("engine")))
        if entry is None:
            continue
        if event.kind == "engine.ready":
            entry["start_s"] = round(entry["start_s"] + _seconds(data["start_s"]), 3)
        elif event.kind == "engine.stop":
            entry["stop_s"] = round(entry["stop_s"] + _seconds(data["stop_s"]), 3)
        elif event.kind == "engine.failed":
            entry["failures"] += 1
        elif event.kind == "engine.config" and isinstance(data["effective"], Mapping):
            versions = data["effective"].get("versions")
            entry["versions"] = versions if isinstance(versions, Mapping) else {}
    return list(table.values())


def _times(events: Sequence[Event]) -> dict[tuple[str, object], CellTime]:
    began: datetime | None = None
    zero = 0
    spans: dict[tuple[str, object], tuple[str | None, int, int]] = {}
    running: dict[str, tuple[str, object]] = {}
    for event in events:
        if event.kind == "run.begin":
            began, zero = _wall(event["wall_time"]), event.t_ns
        name = str(event.data.get("cell"))
        if event.kind == "cell.begin":
            running[name] = (name, event["attempt"] if isinstance(event["attempt"], int) else 0)
            spans[running[name]] = (_later(began, event.t_ns - zero), event.t_ns, event.t_ns)
        elif name in running:
            wall_text, first, _ = spans[running[name]]
            spans[running[name]] = (wall_text, first, max(first, event.t_ns))
            if event.kind == "cell.end":
                del running[name]
    return {key: CellTime(wall, round((last - first) / 1e9, 3)) for key, (wall, first, last) in spans.items()}


def _later(began: datetime | None, ns: int) -> str | None:
    try:
        return began and (began + timedelta(microseconds=ns // 1000)).isoformat(timespec="seconds")
    except OverflowError:
        return None


def _wall(value: object) -> datetime | None:
    try:
        return datetime.fromisoformat(str(value).replace("Z", "+00:00"))
    except ValueError:
        return None


def _logs(events: Sequence[Event]) -> dict[str, EngineLog]:
    failed = [e for e in events if e.kind == "engine.failed"]
    paths = {str(e["engine"]): str(e["log"] or "") for e in events if e.kind == "engine.start"}
    paths |= {str(e["engine"]): str(e["log"]) for e in failed if e.data.get("log")}
    tails = {str(e["engine"]): str(e["log_tail"] or "") for e in failed}
    return {name: EngineLog(paths.get(name, ""), tails.get(name, "")) for name in paths | tails}


def _invalid(events: Sequence[Event]) -> list[dict[str, object]]:
    found = [{"settings": e["settings"], "why": str(e["why"])} for e in events if e.kind == "plan.invalid"]
    return [entry for i, entry in enumerate(found) if entry not in found[:i]]


def _untold(events: Sequence[Event]) -> list[str] | None:
    """What is left out in each cell."""
    said = [event.data.get("untold") for event in events if event.kind == "plan.cell"]
    known = [list(map(str, names)) for names in said if isinstance(names, list)]
    return [name for name in known[-1] if all(name in names for names in known)] if known else None


def _notes(events: Sequence[Event]) -> list[str]:
    return list(dict.fromkeys(str(event["text"]) for event in events if event.kind == "note"))


def _served(events: Sequence[Event]) -> list[str]:
    """Of Sends that may be served less than all, or nothing: by vLLM's own count of each request."""
    roles = {str(e["engine"]): str(e["role"]) for e in events if e.kind == "engine.start"}
    loose: dict[tuple[str, ...], int] = {}
    of: dict[str, tuple[str, ...]] = {}
    found: Counter[tuple[str, ...]] = Counter()
    for event in events:
        data = event.data
        if event.kind == "expect.hit" and data["cell"] and data.get("least_external") == 0 < data["external"]:
            loose[_place(data, roles)] = loose.get(_place(data, roles), 0) + data["external"]
        elif event.kind == "request.sent" and _place(data, roles) in loose:
            of[str(data["request"])] = _place(data, roles)
        elif event.kind == "request.done" and (place := of.get(str(data["request"]))):
            found[place] += data["cached_tokens"] or 0
    return [f"{' '.join(place)}: {_share(found[place], most)}" for place, most in loose.items()]


def _place(data: Mapping[str, object], roles: Mapping[str, str]) -> tuple[str, ...]:
    return str(data["cell"]), roles.get(str(data["engine"]), str(data["engine"])), str(data["arm"])


def _share(found: int, most: int) -> str:
    return f"served {found} of {most} tokens" if found else f"a clean miss (of {most} tokens)"


def _seconds(value: object) -> float:
    return float(value) if isinstance(value, (int, float)) else 0.0
