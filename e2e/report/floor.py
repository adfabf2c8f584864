"""How much of a run's time was the rig's own: total over engine floor, the time that starts and answers need anyway."""

from __future__ import annotations

from collections.abc import Sequence

from e2e.base.event import Event


def floor(events: Sequence[Event], *, total_s: float) -> dict[str, float | None]:
    """``starts_s``: from launch to ready, summed over engines; ``tokens_s``: from sending to the last token, over all
    requests (one at a time; with several at once the sum overstates). ``ratio``: total / (starts + tokens), None when
    nothing ran. Goal: at most 1.2."""
    starts = sum(float(e["start_s"]) for e in events if e.kind == "engine.ready" and isinstance(e["start_s"], float))
    spans = [(e["done_ns"], e["sent_ns"]) for e in events if e.kind == "request.done"]
    tokens = sum((done - sent) / 1e9 for done, sent in spans if isinstance(done, int) and isinstance(sent, int))
    ratio = round(total_s / (starts + tokens), 3) if starts + tokens > 0 else None
    return {"total_s": round(total_s, 1), "starts_s": round(starts, 1), "tokens_s": round(tokens, 1), "ratio": ratio}


def sentence(figures: dict[str, float | None]) -> str:
    if figures["ratio"] is None:
        return f"took {figures['total_s']} s"
    return (
        f"took {figures['total_s']} s, {figures['ratio']:.2f} times what starting engines ({figures['starts_s']} s) "
        f"and answering ({figures['tokens_s']} s) need"
    )
