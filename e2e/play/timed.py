"""Timed steps: settings of one engine measured in turn. Each sample empties vLLM's own cache before it sends."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from e2e.base.cell import Cell
from e2e.base.connector import HitRule
from e2e.base.errors import EngineError
from e2e.base.event import Event, Record
from e2e.observe.metrics import Snapshot
from e2e.play.site import LiveEngine, salted
from e2e.replay.paired import Sender, timed_cell
from e2e.replay.prompts import Prompt
from e2e.waits import until

#: Requests whose launches are counted, per side and length; of one more the GPU's timeline is told.
PROFILED = 3


@dataclass(frozen=True, kw_only=True)
class Branch:
    """What is compared on one engine. ``sides``: name -> cell; those of one cell share what is stored. ``prompts``:
    length in tokens -> as many as run at once. ``rule``: what the connector serves. ``numbers``: of the
    samples; ``order``: number -> (place, side), those that are measured under it. ``launched``: sides that are
    profiled. ``salt``: of this comparison. ``repeats``: pairs per length, drawn ``looks`` times at most,
    until ``enough`` says of the events so far that those of so many at once suffice."""

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
    looks: int = 1
    enough: Callable[[Sequence[Event], int], bool] = lambda events, at_once: False

    def play(self, engine: LiveEngine, record: Record) -> None:
        """Without digests from now on: what is measured is the connector, and its cells are proven."""
        engine.digests.stop()
        senders = {cell.id: self._sender(engine, cell) for cell in self.sides.values()}
        by_side = {side: senders[cell.id] for side, cell in self.sides.items()}
        heard: list[Event] = []

        def hear(kind: str, **data: object) -> None:
            record(kind, **data)
            heard.append(Event(kind, data))

        for prompts in self.prompts.values():
            for sender in senders.values():
                sender.store(prompts)
        engine.evidence.loads()  # a connector that stores beside the compute is done when it has told them
        if self.launched:
            record_copy(hear, engine, self.name)
        for prompts in self.prompts.values():  # first, since what the changed part takes says how many pairs it needs
            _warm(by_side.values(), prompts[:1])
            for side in self.launched:
                _profile(by_side[side], engine, hear, prompts, branch=self.name, side=side)
        for at_once in self.concurrency:
            for look in range(1, self.looks + 1):
                for prompts in self.prompts.values():
                    self._batch(by_side, engine, hear, prompts, at_once, look)
                if self.enough(heard, at_once):
                    break

    def _batch(
        self, by_side: Mapping[str, Sender], engine: LiveEngine, record: Record, prompts: Sequence[Prompt],
        at_once: int, look: int,
    ) -> None:  # fmt: skip
        if look == 1:
            _warm(by_side.values(), prompts[:at_once])
        engine.evidence.loads()  # those so far aren't timed
        for repeat in range(self.repeats):
            chosen = [prompts[(repeat + i) % len(prompts)] for i in range(at_once)]
            number = next(self.numbers)
            for place, side in self.order(number):
                about = {"branch": self.name, "round": self.round, "number": number, "order": place, "look": look}
                _sample(by_side[side], engine, record, chosen, self.rule, **about, side=side)
        record_loads(record, engine, self.name, concurrency=at_once, length=len(prompts[0]))

    def _sender(self, engine: LiveEngine, cell: Cell) -> Sender:
        salt = salted(self.salt, self.name, cell.id)
        return Sender(
            engine.client, cell.id, salt, engine.adapter.timed_params(cell), engine.settings.request_limit_s
        )  # fmt: skip


def _warm(senders: Iterable[Sender], prompts: Sequence[Prompt]) -> None:
    """Not measured: the first of its shape may compile something."""
    for sender in {id(sender): sender for sender in senders}.values():
        sender.forget_local()
        sender.send(prompts)


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


def _profile(
    sender: Sender, engine: LiveEngine, record: Record, prompts: Sequence[Prompt], **about: object
) -> None:  # fmt: skip
    """Launches, and what a GPU did when, of requests of their own: a profiled request is slower."""
    of = {"engine": engine.name, "length": len(prompts[0]), **about}
    try:
        counts = _profiled("rig_profile", sender, engine, prompts[:1] * PROFILED)
        record("gain.launches", requests=PROFILED, counts=counts, **of)
        if counts["device"] == "cuda":
            record("gain.timeline", rows=_profiled("rig_timeline", sender, engine, prompts[:1]), **of)
    except EngineError as error:
        record("note", text=f"Launches were not counted, or not told in time: {error}")


def _profiled(method: str, sender: Sender, engine: LiveEngine, prompts: Sequence[Prompt]) -> dict[str, object]:
    """What the first rank says of these, sent one after the other."""
    engine.client.collective_rpc(method, True)
    for prompt in prompts:
        sender.forget_local()
        sender.send([prompt])
    return engine.client.collective_rpc(method, False)[0]


def record_loads(record: Record, engine: LiveEngine, branch: str, *, concurrency: int, length: int) -> None:
    """Of the timed loads since the journal was read last: what they took on the host, and whether the forward met any
    overlapped one under way. Nothing is told of a connector whose journal doesn't say (Maru's log)."""
    by_cell: dict[str, list[Mapping[str, object]]] = {}
    for row in engine.evidence.loads():
        if cell := timed_cell(row["request"]):
            by_cell.setdefault(cell, []).append(row)
    for cell, rows in by_cell.items():
        about = {"branch": branch, "engine": engine.name, "cell": cell}
        overlapped = [row for row in rows if row.get("overlap") is True and "pending_at_forward" in row]
        if overlapped:
            record(
                "gain.overlap", **about, loads=len(overlapped),
                pending=sum(row["pending_at_forward"] > 0 for row in overlapped),
                waited=sum(row["blocking_waits"] > 0 for row in overlapped),
            )  # fmt: skip
        if timed := [row for row in rows if row.get("read_s") is not None]:
            placed = [row.get("place_s") for row in timed]
            record(
                "gain.timings", **about, concurrency=concurrency, length=length, loads=len(timed),
                read_s=sum(row["read_s"] for row in timed), place_s=None if None in placed else sum(placed),
            )  # fmt: skip


def record_copy(record: Record, engine: LiveEngine, branch: str) -> None:
    """What a load would be held against: a copy in the engine's own process."""
    try:
        (found, *_) = engine.client.collective_rpc("rig_copy")
    except (EngineError, ValueError) as error:
        record("note", text=f"The machine's copy speed was not measured: {error}")
        return
    record("gain.copy", branch=branch, engine=engine.name, **found)


def _either(counted: Mapping[str, float], *names: str) -> int | None:
    return next((int(counted[name]) for name in names if name in counted), None)
