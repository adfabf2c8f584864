"""How much of a run's time was the rig's own: total over the time that starts and answers need anyway."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from e2e.base.event import Event


def overhead(events: Sequence[Event], *, total_s: float) -> dict[str, float | None]:
    """``starts_s``: from launch to ready, summed over engines; ``tokens_s``: from sending to the last token, over all
    requests (one at a time; with several at once the sum overstates). Where engines run side by side, the slowest start
    and the answers of the busiest engine key: no run can take less. ``ratio``: total / (starts + tokens), None when
    nothing ran. Goal: at most 1.2, side by side 1.3."""
    add = max if beside(events) else sum
    starts = add(
        [float(e["start_s"]) for e in events if e.kind == "engine.ready" and isinstance(e["start_s"], float)] or [0.0]
    )
    tokens = add(_answering(events).values() or [0.0])
    ratio = round(total_s / (starts + tokens), 3) if starts + tokens > 0 else None
    return {
        "total_s": round(total_s, 1), "starts_s": round(starts, 1), "tokens_s": round(tokens, 1), "ratio": ratio,
        "digest_share": digest_share(events),
    }  # fmt: skip


def beside(events: Sequence[Event]) -> bool:
    """Did engines run side by side? Then no time says anything of one of them alone."""
    return any(e.kind == "plan.cell" and e.data.get("timed") is False for e in events)


def _answering(events: Sequence[Event]) -> dict[str, float]:
    """Engine key -> seconds from sending to the last token, over its requests."""
    keys = {str(e["engine"]): str(e["engine_key"]) for e in events if e.kind == "engine.start"}
    asked = {str(e["request"]): keys.get(str(e["engine"]), "") for e in events if e.kind == "request.sent"}
    seconds: dict[str, float] = defaultdict(float)
    for event in events:
        if event.kind == "request.done" and isinstance(event["done_ns"], int) and isinstance(event["sent_ns"], int):
            seconds[asked.get(str(event["request"]), "")] += (event["done_ns"] - event["sent_ns"]) / 1e9
    return seconds


def digest_share(events: Sequence[Event]) -> float | None:
    """Time that hashing took where nothing came from a cache over the TTFT of those requests (which holds it); None
    without digests, and where nothing was timed. Goal: at most 0.05 at 2,000 tokens."""
    if beside(events):
        return None
    served = {_arm(e): False for e in events if e.kind == "expect.hit"}
    served |= {_arm(e): True for e in events if e.kind == "expect.hit" and (e["local"] or e["external"])}
    cost = sum(float(e["cost_s"]) for e in events if e.kind == "digest.cost" and served.get(_arm(e)) is False)
    cold = {e["request"] for e in events if e.kind == "request.sent" and served.get(_arm(e)) is False}
    waits = [e for e in events if e.kind == "request.done" and e["request"] in cold]
    ttft = sum((e["first_ns"] - e["sent_ns"]) / 1e9 for e in waits if isinstance(e["first_ns"], int))
    return round(cost / ttft, 4) if cost and ttft > 0 else None


def _arm(event: Event) -> tuple[str, ...]:
    return tuple(str(event[name]) for name in ("engine", "cell", "arm"))


def sentence(figures: dict[str, float | None], *, beside: bool = False) -> str:
    """``beside``: engines ran side by side."""
    if figures["ratio"] is None:
        return f"took {figures['total_s']} s"
    starting, answering = (
        ("the slowest engine start", "the busiest one's answers") if beside else ("starting engines", "answering")
    )
    text = (
        f"took {figures['total_s']} s, {figures['ratio']:.2f} times what {starting} ({figures['starts_s']} s) "
        f"and {answering} ({figures['tokens_s']} s) need"
    )
    share = figures.get("digest_share")
    return text if share is None else f"{text}; digests cost {share:.1%} of the cold TTFT"
