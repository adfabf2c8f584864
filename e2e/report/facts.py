"""What a report says beside verdicts, derived from the recording: the run, its engines, what was left out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from e2e.base.event import Event
from e2e.report.floor import floor


@dataclass(frozen=True)
class RunFacts:
    """``run`` and ``engines`` as they stand in report.json; times in seconds."""

    run: Mapping[str, object]
    engines: Sequence[Mapping[str, object]]
    invalid: Sequence[Mapping[str, object]]
    notes: Sequence[str]

    @property
    def settings(self) -> Mapping[str, object]:
        settings = self.run.get("settings")
        return settings if isinstance(settings, Mapping) else {}


def facts(events: Sequence[Event]) -> RunFacts:
    return RunFacts(run=_run(events), engines=_engines(events), invalid=_invalid(events), notes=_notes(events))


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
    names = ("run_id", "command", "versions", "machine", "settings")
    run: dict[str, object] = {name: first.get(name) for name in names}
    seconds = round(sum(float(a["seconds"]) for a in attempts), 3)
    return run | {
        "began": first.get("wall_time"),
        "seconds": seconds,
        "floor": floor(events, total_s=seconds),
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
            table[name]["starts"] += 1
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
            entry["versions"] = data["effective"].get("versions", {})
    return list(table.values())


def _invalid(events: Sequence[Event]) -> list[dict[str, object]]:
    found = [{"settings": e["settings"], "why": str(e["why"])} for e in events if e.kind == "plan.invalid"]
    return [entry for i, entry in enumerate(found) if entry not in found[:i]]


def _notes(events: Sequence[Event]) -> list[str]:
    return list(dict.fromkeys(str(event["text"]) for event in events if event.kind == "note"))


def _seconds(value: object) -> float:
    return float(value) if isinstance(value, (int, float)) else 0.0
