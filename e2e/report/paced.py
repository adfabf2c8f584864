"""The pace of a pool: what of the asked figures was reached."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from e2e.base.event import Event
from e2e.base.pace import latency, rate

TITLE = "Pace of the pool (no emulation of coherence)"


def paced(events: Sequence[Event]) -> list[str]:
    """One sentence for each pace and direction, over all engines that kept it; see ``inside.pace`` for what was counted
    there. Bandwidth: bytes over the time for which any were under way. Latency: the mean of what a transfer took beyond
    its turn on the link."""
    asked: dict[str, str] = {}
    sums: dict[tuple[str, str], Counter[str]] = {}
    for event in events:
        if event.kind == "engine.config" and isinstance(event["effective"], Mapping):
            asked[str(event["engine"])] = str(event["effective"].get("pool_pace", ""))
        elif event.kind == "connector.evidence" and (pace := asked.get(str(event["engine"]))):
            for direction in ("read", "write"):
                found = {name: event["counters"].get(f"paced_{direction}{name}") for name in _COUNTED}
                sums.setdefault((pace, direction), Counter()).update(
                    {name: value for name, value in found.items() if isinstance(value, int)}
                )
    return [_sentence(*key, of) for key, of in sums.items() if of["s"] and of["_ns"]]


_COUNTED = ("s", "_bytes", "_ns", "_late_ns")


def _sentence(pace: str, direction: str, of: Counter[str]) -> str:
    reached = f"{rate(of['_bytes'] / of['_ns'] * 1e9)}, {latency(of['_late_ns'] / of['s'])}"
    size = of["_bytes"] / of["s"] / 1000
    return f"{direction}s: asked for {pace}; reached {reached} ({of['s']} of {size:.3g} kB on average)"
