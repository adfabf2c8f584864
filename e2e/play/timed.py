"""Timed steps: settings of one engine measured in turn. Each sample empties vLLM's own cache before it sends."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from e2e.base.cell import Cell
from e2e.base.connector import HitRule
from e2e.base.errors import EngineError
from e2e.base.event import Record
from e2e.observe.metrics import Snapshot
from e2e.play.site import LiveEngine, salted
from e2e.replay.paired import Sender, timed_cell
from e2e.replay.prompts import Prompt
from e2e.waits import until

#: Requests whose launches are counted, per side and length.
PROFILED = 3


@dataclass(frozen=True, kw_only=True)
class Branch:
    """What is compared on one engine. ``sides``: name -> cell; those of one cell share what is stored. ``prompts``:
    length in tokens -> as many as run at once. ``rule``: what the connector serves. ``numbers``: of the
    samples; ``order``: number -> (place, side), those that are measured under it. ``launched``: sides whose
    launches are counted. ``salt``: of this comparison."""

    name: str
    round: int
    sides: Mapping[str, Cell]
    prompts: Mapping[int, Sequence[Prompt]]
    rule: HitRule
    concurrency: Sequence[int]
    repeats: int
    numbers: Iterator[int]
    order: Callable[[int], Iterable[tuple[int, str]]]
    launched: Sequence[str]
    salt: str

    def play(self, engine: LiveEngine, record: Record) -> None:
        senders = {cell.id: self._sender(engine, cell) for cell in self.sides.values()}
        by_side = {side: senders[cell.id] for side, cell in self.sides.items()}
        for prompts in self.prompts.values():
            for sender in senders.values():
                sender.store(prompts)
            for at_once in self.concurrency:
                for sender in senders.values():  # not measured: the first of its shape may compile something
                    sender.forget_local()
                    sender.send(prompts[:at_once])
                engine.evidence.loads()  # those so far aren't timed
                for repeat in range(self.repeats):
                    chosen = [prompts[(repeat + i) % len(prompts)] for i in range(at_once)]
                    number = next(self.numbers)
                    for place, side in self.order(number):
                        about = {"branch": self.name, "round": self.round, "number": number, "order": place}
                        _sample(by_side[side], engine, record, chosen, self.rule, **about, side=side)
                record_overlap(record, engine, self.name)
            for side in self.launched:
                _launches(by_side[side], engine, record, prompts, branch=self.name, side=side)

    def _sender(self, engine: LiveEngine, cell: Cell) -> Sender:
        salt = salted(self.salt, self.name, cell.id)
        return Sender(
            engine.client, cell.id, salt, engine.adapter.timed_params(cell), engine.settings.request_limit_s
        )  # fmt: skip


def _sample(
    sender: Sender, engine: LiveEngine, record: Record, prompts: Sequence[Prompt], rule: HitRule, **about: object
) -> None:  # fmt: skip
    expected = rule.external(len(prompts[0]))
    least = {"least": max(expected - rule.short_by, 1) * len(prompts)} if rule.short_by else {}
    sender.forget_local()

    def metrics() -> Snapshot:
        return Snapshot.parse(engine.client.metrics())

    before = metrics()
    answers = sender.send(prompts)
    told = before.ttft_count + len(prompts)
    after = until(metrics, lambda now: now.ttft_count >= told, limit_s=2.0, every_s=0.005)
    counted = after.since(before)
    record(
        "gain.sample", engine=engine.name, concurrency=len(prompts), length=len(prompts[0]),
        ttft_s=[(answer.first_ns - answer.sent_ns) / 1e9 for answer in answers],
        server={"sum_s": after.ttft_sum - before.ttft_sum, "count": after.ttft_count - before.ttft_count},
        local=_either(counted, "local_cache_hit", "local_hits"),
        external=_either(counted, "external_kv_transfer", "external_hits"),
        expected=expected * len(prompts), **least, **about,
    )  # fmt: skip


def _launches(
    sender: Sender, engine: LiveEngine, record: Record, prompts: Sequence[Prompt], **about: object
) -> None:  # fmt: skip
    """Counted over requests of their own: a profiled request is slower."""
    try:
        engine.client.collective_rpc("rig_profile", True)
        for prompt in prompts[:1] * PROFILED:
            sender.forget_local()
            sender.send([prompt])
        counts = engine.client.collective_rpc("rig_profile", False)[0]
    except EngineError as error:
        record("note", text=f"Launches were not counted: {error}")
        return
    record("gain.launches", engine=engine.name, length=len(prompts[0]), requests=PROFILED, counts=counts, **about)


def record_overlap(record: Record, engine: LiveEngine, branch: str) -> None:
    """Of the timed overlapped loads since the journal was read last: did the forward meet any under way? Nothing is
    told of a connector whose journal doesn't say (Maru's log)."""
    by_cell: dict[str, list[Mapping[str, object]]] = {}
    for row in engine.evidence.loads():
        cell = timed_cell(row["request"])
        if cell and row.get("overlap") is True and "pending_at_forward" in row:
            by_cell.setdefault(cell, []).append(row)
    for cell, rows in by_cell.items():
        record(
            "gain.overlap", branch=branch, engine=engine.name, cell=cell, loads=len(rows),
            pending=sum(row["pending_at_forward"] > 0 for row in rows),
            waited=sum(row["blocking_waits"] > 0 for row in rows),
        )  # fmt: skip


def _either(counted: Mapping[str, float], *names: str) -> int | None:
    return next((int(counted[name]) for name in names if name in counted), None)
