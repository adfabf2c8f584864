"""How much of a run's time was the rig's own: total over the time that starts and answers need anyway."""

from __future__ import annotations

from collections.abc import Sequence

from e2e.base.event import Event


def overhead(events: Sequence[Event], *, total_s: float) -> dict[str, float | None]:
    """``starts_s``: from launch to ready, summed over engines; ``tokens_s``: from sending to the last token, over all
    requests (one at a time; with several at once the sum overstates). ``ratio``: total / (starts + tokens), None when
    nothing ran. Goal: at most 1.2."""
    starts = sum(float(e["start_s"]) for e in events if e.kind == "engine.ready" and isinstance(e["start_s"], float))
    spans = [(e["done_ns"], e["sent_ns"]) for e in events if e.kind == "request.done"]
    tokens = sum((done - sent) / 1e9 for done, sent in spans if isinstance(done, int) and isinstance(sent, int))
    ratio = round(total_s / (starts + tokens), 3) if starts + tokens > 0 else None
    return {
        "total_s": round(total_s, 1), "starts_s": round(starts, 1), "tokens_s": round(tokens, 1), "ratio": ratio,
        "digest_share": digest_share(events),
    }  # fmt: skip


def digest_share(events: Sequence[Event]) -> float | None:
    """Time that hashing took where nothing came from a cache over the TTFT of those requests (which holds it); None
    without digests. Goal: at most 0.05 at 2,000 tokens."""
    served = {_arm(e): False for e in events if e.kind == "expect.hit"}
    served |= {_arm(e): True for e in events if e.kind == "expect.hit" and (e["local"] or e["external"])}
    cost = sum(float(e["cost_s"]) for e in events if e.kind == "digest.cost" and served.get(_arm(e)) is False)
    cold = {e["request"] for e in events if e.kind == "request.sent" and served.get(_arm(e)) is False}
    waits = [e for e in events if e.kind == "request.done" and e["request"] in cold]
    ttft = sum((e["first_ns"] - e["sent_ns"]) / 1e9 for e in waits if isinstance(e["first_ns"], int))
    return round(cost / ttft, 4) if cost and ttft > 0 else None


def _arm(event: Event) -> tuple[str, ...]:
    return tuple(str(event[name]) for name in ("engine", "cell", "arm"))


def sentence(figures: dict[str, float | None]) -> str:
    if figures["ratio"] is None:
        return f"took {figures['total_s']} s"
    text = (
        f"took {figures['total_s']} s, {figures['ratio']:.2f} times what starting engines ({figures['starts_s']} s) "
        f"and answering ({figures['tokens_s']} s) need"
    )
    share = figures.get("digest_share")
    return text if share is None else f"{text}; digests cost {share:.1%} of the cold TTFT"
