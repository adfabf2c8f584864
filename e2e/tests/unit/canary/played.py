"""A probe as the prober records it, with answers that a test chooses."""

from __future__ import annotations

from dataclasses import dataclass, field

from e2e.base.event import SCHEMA, Event
from e2e.base.program import Program, plainly

#: Tokens of an answer that every engine gives, and one that none computes.
RIGHT, WRONG = (11, 12, 13, 14), (11, 99, 13, 14)


@dataclass(frozen=True)
class Said:
    """One answer. ``cached``: as the request tells, None: it does not. ``others``: tokens that vLLM counted beside
    ours; ``shift``: of all logprobs; ``lead``: of the chosen token over its rival 99."""

    tokens: tuple[int, ...] = RIGHT
    cached: int | None = 0
    others: int = 0
    at_work: int = 0
    shift: float = 0.0
    lead: float = 5.0
    text: tuple[str, ...] = ()
    metrics: bool = True
    counters: dict[str, float] = field(default_factory=dict)


class Recorded:
    """``events`` of one segment, with a growing clock."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.known: set[str] = set()
        self.add(
            "run.begin", run_id="r", attempt=1, schema=SCHEMA, command=["maru-e2e"], versions={}, machine={},
            settings={}, wall_time="2026-01-01T00:00:00+00:00",
        )  # fmt: skip

    def add(self, kind: str, **data: object) -> None:
        self.events.append(Event(kind, data, len(self.events)))

    def cell(
        self, cell: str, program: Program, said: dict[str, Said], *, noise: float | None = None, foreign=(),
        again: str | None = None, arithmetic: str | None = None, digest: str = "d",
    ) -> None:  # fmt: skip
        """``said``: by the Send's name; a Send without an answer was not sent."""
        self.add(
            "plan.cell", cell=cell, attempt=1, settings={"scenario": "cross"}, engine_key="in-use", adapter="unknown",
            expect={}, oracle="split_matched", step=None, lengths=[text.tokens for text in program.texts], blind=[],
            counters=False, baseline=False, digests=False, fault=None, scenario=program.scenario,
            program=plainly(program), program_digest=program.digest, noise=noise, foreign=[*foreign],
            **({"again": again} if again else {}),
        )  # fmt: skip
        for site in program.sites:
            if site.name not in self.known:
                self.known.add(site.name)
                engine = f"in-use.{site.name}"
                self.add(
                    "engine.start", engine=engine, engine_key="in-use", role=site.name, attempt=1, argv=[],
                    launcher="in use", log=None,
                )  # fmt: skip
                self.add(
                    "engine.config", engine=engine, effective={"versions": {}, "arithmetic": arithmetic or site.name}
                )
        self.add("cell.begin", cell=cell, engine=None, attempt=1)
        for send in program.sends:
            if send.name in said:
                self._send(cell, program, send, said[send.name], digest)
        self.add("cell.end", cell=cell, engine=None, attempt=1)

    def _send(self, cell: str, program: Program, send, said: Said, digest: str) -> None:
        place = {"engine": f"in-use.{send.site}", "cell": cell, "arm": send.name}
        (text,), (hit,) = send.texts, program.hits(send)
        tokens, answer = program.texts[text].tokens, said.tokens[: send.answer]
        request = f"{cell}.{send.name}"
        self.add("arm.begin", **place)
        self.add(
            "expect.hit", **place, prompt=text, tokens=tokens, local=hit.local.most, external=hit.external.most,
            least_local=hit.local.least, least_external=hit.external.least, digest=digest,
        )  # fmt: skip
        self.add("request.sent", request=request, **place, prompt=text, params=None, salt="s")
        logprobs = [-0.1 + said.shift] * len(answer)
        top = [{f"token_id:{token}": -0.1 + said.shift, "token_id:99": -0.1 - said.lead} for token in answer]
        self.add(
            "request.done", request=request, token_ids=[*answer], logprobs=logprobs, top=top, finish_reason="length",
            cached_tokens=said.cached, sent_ns=0, first_ns=1, done_ns=2, text=[*said.text],
        )  # fmt: skip
        self.add("arm.end", **place)
        if said.metrics:
            served = {"local_cache_hit": 0, "external_kv_transfer": 0}
            if send.external:
                served["external_kv_transfer"] = said.cached or 0
            else:
                served["local_cache_hit"] = said.cached or 0
            counters = {
                "prompt_tokens": tokens + said.others, "generation_tokens": len(answer), "preemptions": 0,
                "external_hits": served["external_kv_transfer"], **served, **said.counters,
            }  # fmt: skip
            self.add(
                "metrics.delta", **place, requests=1, counters=counters, ttft={"sum_s": 0.1, "count": 1}, complete=True,
                went_back=False, at_work=said.at_work,
            )  # fmt: skip
