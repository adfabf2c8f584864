"""Which KV a step reads and which it completes, from the scheduler's output alone (vLLM 0.14 to 0.33)."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import xxhash


@dataclass
class Tracked:
    """``prompt``: hash of the prompt's token ids, equal for equal prompts; ``length`` in tokens. ``cold``: nothing of
    it came out of a cache, so the request computes all of it. ``blocks``: its block table. ``end``: tokens that it
    had when its last step ended. ``reads``: how many were recorded."""

    request: str
    prompt: int
    length: int
    blocks: list[int] = field(default_factory=list)
    cold: bool = True
    completed: bool = False
    end: int = 0
    reads: int = 0


@dataclass(frozen=True)
class Step:
    """``reads``: (request, tokens that were there before its first forward, or its first one after it was preempted or
    a load of it failed). ``completes``: requests whose prompt this
    step computes to its end, all of it by themselves."""

    reads: list[tuple[Tracked, int]]
    completes: list[Tracked]


class Steps:
    def __init__(self) -> None:
        self._requests: dict[str, Tracked] = {}

    def next(self, output) -> Step:
        """``output``: vLLM's SchedulerOutput. Requests that began before the probe was on are left out."""
        for request in getattr(output, "finished_req_ids", None) or ():
            self._requests.pop(request, None)
        reads, completes = [], []
        for tracked, computed, first in [*self._new(output), *self._cached(output)]:
            if first and computed:
                tracked.cold = False
                reads.append((tracked, computed))
            end = tracked.end = computed + output.num_scheduled_tokens.get(tracked.request, 0)
            if tracked.cold and not tracked.completed and end >= tracked.length:
                tracked.completed = True
                completes.append(tracked)
        return Step(reads, completes)

    def _new(self, output) -> list[tuple[Tracked, int, bool]]:
        found = []
        for new in output.scheduled_new_reqs:
            ids = np.asarray(new.prompt_token_ids or [], dtype=np.int64)
            tracked = Tracked(new.req_id, xxhash.xxh3_64_intdigest(ids.tobytes()), len(ids), list(new.block_ids[0]))
            if (before := self._requests.get(new.req_id)) is not None:  # newer runners take a resumed one for new
                before.blocks, tracked = tracked.blocks, before
            self._requests[new.req_id] = tracked
            found.append((tracked, new.num_computed_tokens, True))
        return found

    def _cached(self, output) -> list[tuple[Tracked, int, bool]]:
        cached, found = output.scheduled_cached_reqs, []
        for i, request in enumerate(cached.req_ids):
            if (tracked := self._requests.get(request)) is None:
                continue
            fresh = cached.new_block_ids[i]
            resumed = request in cached.resumed_req_ids
            if resumed:
                tracked.blocks = list(fresh[0]) if fresh else []
            elif fresh:
                tracked.blocks += fresh[0]
            computed = cached.num_computed_tokens[i]
            # a failed load makes the scheduler step back; beyond the prompt a rejected draft token does
            back = computed < min(tracked.end, tracked.length)
            found.append((tracked, computed, resumed or back))
        return found
