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
        self, cell: str, program: Program, said: dict[str, Said | tuple[Said, ...]], *,
        noise: float | None = None, foreign=(), again: str | None = None, arithmetic: str | None = None,
        digest: str = "d", batch_invariant: bool | None = None,
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
                effective = {"versions": {}, "arithmetic": arithmetic or site.name, "batch_invariant": batch_invariant}
                self.add("engine.config", engine=engine, effective=effective)
        self.add("cell.begin", cell=cell, engine=None, attempt=1)
        for send in program.sends:
            if send.name in said:
                self._send(cell, program, send, said[send.name], digest)
        self.add("cell.end", cell=cell, engine=None, attempt=1)

    def _send(self, cell: str, program: Program, send, said: Said | tuple[Said, ...], digest: str) -> None:
        """``said``: of all its texts, or of each."""
        place = {"engine": f"in-use.{send.site}", "cell": cell, "arm": send.name}
        each = said if isinstance(said, tuple) else (said,) * len(send.texts)
        self.add("arm.begin", **place)
        for text, hit, one in zip(send.texts, program.hits(send), each, strict=True):
            self.add(
                "expect.hit", **place, prompt=text, tokens=program.texts[text].tokens, local=hit.local.most,
                external=hit.external.most, least_local=hit.local.least, least_external=hit.external.least,
                digest=f"{digest}{text}",
            )  # fmt: skip
            request, answer = f"{cell}.{send.name}.{text}", one.tokens[: send.answer]
            self.add("request.sent", request=request, **place, prompt=text, params=None, salt="s")
            logprobs = [-0.1 + one.shift] * len(answer)
            top = [{f"token_id:{token}": -0.1 + one.shift, "token_id:99": -0.1 - one.lead} for token in answer]
            self.add(
                "request.done", request=request, token_ids=[*answer], logprobs=logprobs, top=top,
                finish_reason="length", cached_tokens=one.cached, sent_ns=0, first_ns=1, done_ns=2, text=[*one.text],
            )  # fmt: skip
        self.add("arm.end", **place)
        if each[0].metrics:
            self._counters(place, program, send, each)

    def _counters(self, place: dict, program: Program, send, each: tuple[Said, ...]) -> None:
        cached = sum(one.cached or 0 for one in each)
        served = {"local_cache_hit": 0, "external_kv_transfer": 0}
        served["external_kv_transfer" if send.external else "local_cache_hit"] = cached
        asked = sum(program.texts[text].tokens for text in send.texts)
        counters = {
            "prompt_tokens": asked + sum(one.others for one in each), "preemptions": 0,
            "generation_tokens": sum(len(one.tokens[: send.answer]) for one in each),
            "external_hits": served["external_kv_transfer"], **served, **each[0].counters,
        }  # fmt: skip
        self.add(
            "metrics.delta", **place, requests=len(each), counters=counters, ttft={"sum_s": 0.1, "count": len(each)},
            complete=True, went_back=False, at_work=each[0].at_work,
        )  # fmt: skip
