"""How much of a load hides behind the forward: intervals in, shares out."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence

from e2e.base.event import Event
from e2e.base.gain import Hidden, Timeline

Intervals = Sequence[tuple[float, float]]


def timelines(events: Iterable[Event]) -> tuple[Timeline, ...]:
    """One per recorded ``gain.timeline``."""
    found, layers = [], {}
    for event in events:
        if event.kind == "engine.config":
            layers[str(event["engine"])] = event["effective"].get("num_layers")
        elif event.kind == "gain.timeline":
            found.append(_timeline(event.data, layers.get(str(event["engine"]))))
    return tuple(found)


def hidden(load: Intervals, forward: Intervals) -> tuple[float, float]:
    """(length of ``load``, of its part during which ``forward`` runs); what overlaps within either counts once."""
    load, forward = union(load), union(forward)
    covered, at = 0.0, 0
    for start, end in load:
        while at < len(forward) and forward[at][1] <= start:
            at += 1
        inside = itertools.takewhile(lambda each, end=end: each[0] < end, itertools.islice(forward, at, None))
        covered += sum(min(high, end) - max(low, start) for low, high in inside)
    return sum(end - start for start, end in load), covered


def union(intervals: Intervals) -> list[tuple[float, float]]:
    """Sorted, disjoint; what ends before it begins is none."""
    found: list[tuple[float, float]] = []
    for start, end in sorted((start, end) for start, end in intervals if start < end):
        if found and start <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], end)
        else:
            found.append((start, end))
    return found


def loads(copies: Intervals, placements: Intervals) -> list[list[tuple[float, float]]]:
    """One per placement, in the order of time: it and the copies that ended since the one before began, which is how
    layer follows layer through a stream. What is copied after the last placement is no load."""
    found = [[place] for place in sorted(placements)]
    for start, end in copies:
        of = next((load for load in found if end <= load[0][0]), None)
        if of is not None:
            of.append((start, end))
    return found


def _timeline(data: Mapping[str, object], layers: object) -> Timeline:
    rows = {name: [(float(start), float(end)) for start, end in row] for name, row in data["rows"].items()}
    forward = [*rows["attention"], *rows["forward"]]
    of = loads(rows["to_device"], rows["placement"])
    load_us, covered = hidden([each for one in of for each in one] or rows["to_device"], forward)
    single = [hidden(one, forward) for one in of] if len(of) == layers else []
    return Timeline(
        str(data["branch"]), str(data["side"]), int(data["length"]), load_us, covered / load_us if load_us else None,
        max((end for _, end in forward), default=0.0),
        tuple(Hidden(n, took, part / took if took else 0.0) for n, (took, part) in enumerate(single)), rows,
    )  # fmt: skip
