"""Synthetic recordings for tests of pure code: a healthy run of one cell, of any program, for each test to spoil."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from e2e.base.event import Event
from e2e.base.program import Break, Empty, Forget, Happened, Mend, Program, Scribble, Send, Served, Start, Step, plainly
from e2e.judge.lift import lift

CELL, KEY = "HND-layerwise-overlap_on-kernel", "HND"
CONNECTOR, BASELINE = "HND.connector.1", "HND.baseline.1"
STEP, BLOCK = 512, 16
LENGTHS = (513, 1033, 1546)
SETTINGS = {"layout": "HND", "storage_format": "layerwise", "overlap": "on", "placement": "kernel", "load": "async"}
EFFECTIVE = {
    "layout": "HND", "block_size": BLOCK, "attention_backend": "STRIDED", "dtype": "bfloat16", "num_layers": 30,
    "max_num_batched_tokens": STEP, "versions": {"vllm": "0.32.0"}, "batch_invariant": False,
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


def recorded(program: Program) -> dict[str, Any]:
    """Of a plan.cell, what a program says of itself."""
    return {"scenario": program.scenario, "program": plainly(program), "program_digest": program.digest}


class Recording:
    """``events``: list of [kind, data]. Spoil it by ``change`` or ``drop`` before ``build``. ``program``: what the cell
    does, by default the four arms. ``old``: as it was before there were programs."""

    def __init__(
        self, *, lengths=LENGTHS, chunk=256, oracle="aligned", step: int | None = STEP, at_once: int = 1,
        program: Program | None = None, old: bool = False, **plan: Any,
    ) -> None:  # fmt: skip
        self.events: list[list[Any]] = []
        self.lengths = lengths if program is None else tuple(text.tokens for text in program.texts)
        self.chunk, self.oracle, self.step, self.at_once, self.old = chunk, oracle, step, at_once, old
        self.attempt, self.program = 1, program
        self.run(plan)

    def add(self, kind: str, **data: Any) -> None:
        self.events.append([kind, data])

    def run(self, plan: Mapping[str, Any]) -> None:
        """One attempt, whole: ``plan`` replaces keys of plan.cell."""
        self.add(
            "run.begin", run_id="r1", attempt=self.attempt, schema="maru-e2e/recording/1", command="maru-e2e run",
            versions={"maru-e2e": "0.1.0"}, machine={"cpus": 2}, settings={}, wall_time="2025-01-01T00:00:00Z",
        )  # fmt: skip
        settings = SETTINGS | ({"concurrency": self.at_once} if self.at_once > 1 else {})
        planned = {
            "cell": CELL, "attempt": self.attempt, "settings": settings, "engine_key": KEY, "adapter": "embedded",
            "expect": {**SETTINGS, "block_size": BLOCK, "attention_backend": "STRIDED"}, "oracle": self.oracle,
            "step": self.step, "lengths": list(self.lengths), "blind": [], "counters": True,
            "baseline": True,
            "digests": False, "fault": None, **plan,
        }  # fmt: skip
        self.program = self.program or lift(planned)
        planned |= {"deterministic": self.at_once == 1} if self.old else recorded(self.program)
        self.plan = planned
        self.add("plan.cell", **planned)
        lent = [site for site in self.program.sites if self.program.lent(site)]
        for site in lent:
            if not site.connector:
                engine = self.engine(site.name)
                self.add("baseline.begin", engine=engine, engine_key=KEY, attempt=self.attempt)
                for send in self.program.sends:
                    if send.site == site.name:
                        self.arm(engine, None, send.name)
                self.add("baseline.end", engine=engine, engine_key=KEY, attempt=self.attempt)
        self.connector = ""
        for site in lent:
            if site.connector:
                self.connector = self.engine(site.name)
        self.cell(planned["cell"])
        self.add("run.end", attempt=self.attempt)

    def engine(self, site: str, cell: str | None = None) -> str:
        number = sum(kind == "engine.start" and data["role"] == site for kind, data in self.events) + 1
        name = f"HND.{site}.{number}"
        own = {} if cell is None else {"cell": cell}
        self.add(
            "engine.start", engine=name, engine_key=KEY, role=site, attempt=self.attempt, argv=["python"],
            launcher="process", log=f"{name}.log", **own,
        )  # fmt: skip
        self.add("engine.ready", engine=name, start_s=20.0)
        self.add("engine.config", engine=name, effective=dict(EFFECTIVE))
        return name

    def cell(self, cell: str) -> None:
        """Everything but what the lent plain sites are sent."""
        self.add("cell.begin", cell=cell, engine=self.connector, attempt=self.attempt)
        running = {site.name: self.connector for site in self.program.sites if site.connector}
        before: dict[str, list[Step]] = {}
        self.broken: list[dict[str, str]] = []
        for step in self.program.flat:
            if isinstance(step, Start):
                running[step.site] = self.engine(step.site, cell)
                before[step.site] = []
            elif isinstance(step, (Break, Mend)):
                words = {"what": step.what, "how": step.how, "target": step.target}
                if isinstance(step, Break):
                    self.broken.append(words)
                else:
                    self.broken.remove(words)
                self.add("nemesis.begin" if isinstance(step, Break) else "nemesis.end", cell=cell, **words)
            elif isinstance(step, Empty):
                self.add("store.empty", cell=cell, store=step.store, ok=True)
            elif isinstance(step, (Forget, Scribble)):
                before.setdefault(step.site, []).append(step)
            elif isinstance(step, Send) and (
                self.program.site(step.site).connector or not self.program.lent(self.program.site(step.site))
            ):
                self.arm(running[step.site], cell, step.name, before=before.pop(step.site, []))
        for words in self.broken:
            self.add("nemesis.end", cell=cell, **words)
        self.add("cell.end", cell=cell, engine=self.connector, attempt=self.attempt)

    def arm(self, engine: str, cell: str | None, arm: str, *, before: Sequence[Step] = ()) -> None:
        place = {"engine": engine, "cell": cell, "arm": arm}
        (started,) = self.find("engine.start", engine=engine)
        send = self.program.send((started["role"], arm))
        if any(isinstance(step, Forget) for step in before):
            self.add("reset.local", **place, ok=True, tries=1)
        if any(isinstance(step, Scribble) for step in before):
            self.add("overwrite.free", **place, ok=True, blocks=400, seed=7)
        self.add("arm.begin", **place)
        hits = [self.hit(send, number) for number in range(len(send.texts))]
        for text, (local, external) in zip(send.texts, hits, strict=True):
            self.request(place, text, local, external, send.answer)
        self.add("arm.end", **place)
        local, external = (sum(of) for of in zip(*hits, strict=True))
        count, tokens = len(send.texts), sum(self.lengths[text] for text in send.texts)
        counters = {
            "local_cache_hit": local, "external_kv_transfer": external, "external_hits": external,
            "external_queries": tokens - local, "prompt_tokens": tokens, "preemptions": 0,
            "local_compute": tokens - local - external,
        }  # fmt: skip
        happened = {claim.what: claim.least for claim in send.claims if isinstance(claim, Happened)}
        counters |= {what: least for what, least in happened.items() if what in counters}
        slow = {"sum_s": 0.1 if send.external else 0.6, "count": count}
        self.add("metrics.delta", **place, requests=count, counters=counters, ttft=slow, complete=True, went_back=False)
        if self.program.site(send.site).connector:
            load = {
                "storage_format": "layerwise", "placement": "kernel", "load": "async", "overlap": True, "places": 30,
                "layers": 30, "pending_at_forward": 29, "blocking_waits": 3, "failed": False,
            }  # fmt: skip
            loads = [
                {"request": f"{arm}.{p}", "tokens": t, **load} for p, (_, t) in zip(send.texts, hits, strict=True) if t
            ]
            counted = {"hit_tokens": external} if send.external else {}
            counted |= {what: least for what, least in happened.items() if what not in counters}
            self.add("connector.evidence", **place, counters=counted, loads=loads)

    def hit(self, send: Send, number: int) -> tuple[int, int]:
        """Tokens of one of its texts that are served from vLLM's own cache and by the connector."""
        served, tokens = send.claim(Served), self.lengths[send.texts[number]]
        if served is None:
            return 0, 0
        if served.hits:
            return served.hits[number].local.most, served.hits[number].external.most
        return (0, whole(tokens, self.chunk)) if served.external else (whole(tokens, BLOCK), 0)

    def request(
        self, place: Mapping[str, Any], prompt: int, local: int, external: int, asked: int | None = None
    ) -> None:
        request = f"{place['engine']}.{place['cell']}.{place['arm']}.{prompt}.{self.attempt}"
        self.add("expect.hit", **place, prompt=prompt, tokens=self.lengths[prompt], local=local, external=external,
                 digest=f"d{self.attempt}.{prompt}")  # fmt: skip
        self.add("request.sent", request=request, **place, prompt=prompt, params={}, salt=None)
        served = local + external
        split = 0 if self.step and served % self.step == 0 else served
        fast, said = served > 0, {name: part[:asked] for name, part in answer(prompt, split).items()}
        self.add(
            "request.done", request=request, **said, finish_reason="length", cached_tokens=served,
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
