"""A real run parted by engine key after the fact, as shards of its grid would have recorded it."""

from __future__ import annotations

from collections.abc import Sequence

from e2e.base.event import Event


def parted(whole: Sequence[Event]) -> dict[str, list[Event]]:
    """Engine key -> what its share saw."""
    key_of = {e["engine"]: e["engine_key"] for e in whole if e.kind == "engine.start"}
    cell_of = {e["cell"]: e["engine_key"] for e in whole if e.kind == "plan.cell"}
    sent_by = {e["request"]: key_of[e["engine"]] for e in whole if e.kind == "request.sent"}

    def key(event: Event) -> object:
        data = event.data
        named = key_of.get(data.get("engine")) or cell_of.get(data.get("cell"))
        return data.get("engine_key") or named or sent_by.get(data.get("request"))

    keys = dict.fromkeys(map(str, cell_of.values()))
    return {
        own: [_begun(event, number) for event in whole if key(event) in (own, None)]
        for number, own in enumerate(keys, start=1)
    }


def _begun(event: Event, number: int) -> Event:
    if event.kind != "run.begin":
        return event
    settings = {**event["settings"], "shard": [number, 2], "out": f"results/{number}"}
    return Event(event.kind, {**event.data, "run_id": f"shard-{number}", "settings": settings}, event.t_ns)
