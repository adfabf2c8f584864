"""Synthetic recordings for tests of pure code: a healthy run of one cell, to be spoiled by each test."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

from e2e.base.event import Event

CELL, KEY = "HND-layerwise-overlap_on-kernel", "HND"
CONNECTOR, BASELINE = "HND.connector.1", "HND.baseline.1"
STEP, BLOCK = 512, 16
LENGTHS = (513, 1033, 1546)
SETTINGS = {"layout": "HND", "storage_format": "layerwise", "overlap": "on", "placement": "kernel", "load": "async"}
EFFECTIVE = {
    "layout": "HND", "block_size": BLOCK, "attention_backend": "STRIDED", "dtype": "bfloat16", "num_layers": 30,
    "max_num_batched_tokens": STEP, "versions": {"vllm": "0.32.0"},
}  # fmt: skip


def whole(tokens: int, unit: int) -> int:
    return (tokens - 1) // unit * unit


def answer(prompt: int, split: int = 0) -> dict[str, Any]:
    """Output of an engine that computed prompt ``prompt`` by steps that start at ``split`` (0: aligned)."""
    shift = 0.0009765625 * (split % 7)
    logprobs = [-0.5 - 0.125 * prompt - 0.0625 * i - shift for i in range(4)]
    tokens = [1000 + 10 * prompt + i for i in range(4)]
    top = [{f"token_id:{t}": v, f"token_id:{t + 5}": v - 1.5} for t, v in zip(tokens, logprobs, strict=True)]
    return {"token_ids": tokens, "logprobs": logprobs, "top": top}


class Recording:
    """``events``: list of [kind, data]. Spoil it by ``change`` or ``drop`` before ``build``."""

    def __init__(self, *, lengths=LENGTHS, chunk=256, oracle="aligned", step: int | None = STEP, **plan: Any) -> None:
        self.events: list[list[Any]] = []
        self.lengths, self.chunk, self.oracle, self.step = lengths, chunk, oracle, step
        self.attempt = 1
        self.run(plan)

    def add(self, kind: str, **data: Any) -> None:
        self.events.append([kind, data])

    def run(self, plan: Mapping[str, Any]) -> None:
        """One attempt, whole: ``plan`` replaces keys of plan.cell."""
        self.add(
            "run.begin", run_id="r1", attempt=self.attempt, schema="maru-e2e/recording/1", command="maru-e2e run",
            versions={"maru-e2e": "0.1.0"}, machine={"cpus": 2}, settings={}, wall_time="2025-01-01T00:00:00Z",
        )  # fmt: skip
        planned = {
            "cell": CELL, "attempt": self.attempt, "settings": SETTINGS, "engine_key": KEY, "adapter": "embedded",
            "expect": {**SETTINGS, "block_size": BLOCK, "attention_backend": "STRIDED"}, "oracle": self.oracle,
            "step": self.step, "lengths": list(self.lengths), "blind": [], "counters": True,
            "baseline": True, "deterministic": True,
            "digests": False, "fault": None, **plan,
        }  # fmt: skip
        self.plan = planned
        self.add("plan.cell", **planned)
        baseline, self.connector = f"HND.baseline.{self.attempt}", f"HND.connector.{self.attempt}"
        self.engine(baseline, "baseline")
        self.add("baseline.begin", engine=baseline, engine_key=KEY, attempt=self.attempt)
        for arm in ("cold", "local"):
            self.arm(baseline, None, arm)
        self.add("baseline.end", engine=baseline, engine_key=KEY, attempt=self.attempt)
        self.engine(self.connector, "connector")
        self.cell(planned["cell"])
        self.add("run.end", attempt=self.attempt)

    def engine(self, name: str, role: str) -> None:
        self.add(
            "engine.start", engine=name, engine_key=KEY, role=role, attempt=self.attempt, argv=["python"],
            launcher="process", log=f"{name}.log",
        )  # fmt: skip
        self.add("engine.ready", engine=name, start_s=20.0)
        self.add("engine.config", engine=name, effective=dict(EFFECTIVE))

    def cell(self, cell: str) -> None:
        self.add("cell.begin", cell=cell, engine=self.connector, attempt=self.attempt)
        for arm in ("cold", "local", "external", "external_again"):
            self.arm(self.connector, cell, arm)
        self.add("cell.end", cell=cell, engine=self.connector, attempt=self.attempt)

    def arm(self, engine: str, cell: str | None, arm: str) -> None:
        place = {"engine": engine, "cell": cell, "arm": arm}
        external_arm = arm.startswith("external")
        if external_arm:
            self.add("reset.local", **place, ok=True, tries=1)
            self.add("overwrite.free", **place, ok=True, blocks=400, seed=7)
        self.add("arm.begin", **place)
        local = [whole(n, BLOCK) if arm == "local" else 0 for n in self.lengths]
        external = [whole(n, self.chunk) if external_arm else 0 for n in self.lengths]
        for prompt in range(len(self.lengths)):
            self.request(place, prompt, local[prompt], external[prompt])
        self.add("arm.end", **place)
        count, tokens = len(self.lengths), sum(self.lengths)
        counters = {
            "local_cache_hit": sum(local), "external_kv_transfer": sum(external), "external_hits": sum(external),
            "external_queries": tokens - sum(local), "prompt_tokens": tokens, "preemptions": 0,
            "local_compute": tokens - sum(local) - sum(external),
        }  # fmt: skip
        slow = {"sum_s": 0.1 if external_arm else 0.6, "count": count}
        self.add("metrics.delta", **place, requests=count, counters=counters, ttft=slow, complete=True, went_back=False)
        if cell is not None:
            load = {
                "storage_format": "layerwise", "placement": "kernel", "load": "async", "overlap": True, "places": 30,
                "layers": 30, "pending_at_forward": 29, "blocking_waits": 3, "failed": False,
            }  # fmt: skip
            loads = [{"request": f"{arm}.{p}", "tokens": t, **load} for p, t in enumerate(external) if t]
            hits = {"hit_tokens": sum(external)} if external_arm else {}
            self.add("connector.evidence", **place, counters=hits, loads=loads)

    def request(self, place: Mapping[str, Any], prompt: int, local: int, external: int) -> None:
        request = f"{place['engine']}.{place['cell']}.{place['arm']}.{prompt}.{self.attempt}"
        self.add("expect.hit", **place, prompt=prompt, tokens=self.lengths[prompt], local=local, external=external,
                 digest=f"d{self.attempt}.{prompt}")  # fmt: skip
        self.add("request.sent", request=request, **place, prompt=prompt, params={}, salt=None)
        served = local + external
        split = 0 if self.step and served % self.step == 0 else served
        fast = place["arm"] != "cold"
        self.add(
            "request.done", request=request, **answer(prompt, split), finish_reason="length", cached_tokens=served,
            sent_ns=0, first_ns=50_000_000 if fast else 200_000_000, done_ns=400_000_000,
        )  # fmt: skip

    # spoiling

    def find(self, kind: str, **where: Any) -> list[dict[str, Any]]:
        """Data of the events that match; ``arm`` and ``cell`` of a request's end are those of its request.sent."""
        sent = {d["request"]: d for k, d in self.events if k == "request.sent"}
        found = []
        for of_kind, data in self.events:
            seen = {**sent.get(data.get("request"), {}), **data} if kind.startswith("request.") else data
            if of_kind == kind and all(seen.get(key) == value for key, value in where.items()):
                found.append(data)
        return found

    def change(self, kind: str, edit: Callable[[dict[str, Any]], None], **where: Any) -> Recording:
        found = self.find(kind, **where)
        assert found, f"no {kind} with {where} to change"
        for data in found:
            fresh = copy.deepcopy(data)
            edit(fresh)
            data.clear()
            data.update(fresh)
        return self

    def drop(self, kind: str, **where: Any) -> Recording:
        found = [id(data) for data in self.find(kind, **where)]
        assert found, f"no {kind} with {where} to drop"
        self.events = [event for event in self.events if id(event[1]) not in found]
        return self

    def build(self) -> list[Event]:
        return [Event(kind, data, t_ns=1_000_000 * i) for i, (kind, data) in enumerate(self.events)]
