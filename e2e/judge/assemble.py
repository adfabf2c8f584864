"""Index -> one ``CellView``. Raises (TypeError, ValueError, KeyError, AttributeError) on values that make no sense; the
judge turns that into an inconclusive cell."""

from __future__ import annotations

from collections.abc import Hashable, Mapping

from e2e.base.event import ARMS
from e2e.judge.index import Data, Engine, Index, hashable
from e2e.judge.view import ARMS_OF, BASELINE, CONNECTOR, Answer, Arm, CellView, Expected, Failure, Plan, Side, Taken


def plan(data: Data) -> Plan:
    if not isinstance(data["settings"], Mapping) or not isinstance(data["expect"], Mapping):
        raise TypeError("plan.cell: settings and expect must be tables")
    return Plan(
        settings=data["settings"],
        engine_key=str(data["engine_key"]),
        adapter=str(data["adapter"]),
        expect=data["expect"],
        oracle=str(data["oracle"]),
        step=None if data["step"] is None else int(data["step"]),
        lengths=tuple(int(length) for length in data["lengths"]),
        blind=tuple(dict(blind) for blind in data["blind"]),
        counters=bool(data["counters"]),
        baseline=bool(data["baseline"]),
        deterministic=bool(data["deterministic"]),
        digests=bool(data["digests"]),
        fault=None if data["fault"] is None else str(data["fault"]),
        load_failure_policy=None if (policy := data.get("load_failure_policy")) is None else str(policy),
    )


def answer(data: Data) -> Answer:
    cached = data["cached_tokens"]
    return Answer(
        request=str(data["request"]),
        tokens=tuple(int(token) for token in data["token_ids"]),
        logprobs=tuple(float(value) for value in data["logprobs"] or ()),
        top=tuple({str(k): float(v) for k, v in (top or {}).items()} for top in data["top"] or ()),
        finish_reason=None if data["finish_reason"] is None else str(data["finish_reason"]),
        cached=None if cached is None else int(cached),
        sent_ns=int(data["sent_ns"]),
        first_ns=int(data["first_ns"]),
        text=tuple(map(str, text)) if isinstance(text := data.get("text"), (list, tuple)) else (),
    )


def arm(index: Index, name: str, events: Mapping[str, list[Data]]) -> Arm:
    """``events``: kind -> data, of one arm of one engine and cell (or of the baseline engine)."""
    last = {kind: data[-1] for kind, data in events.items() if data}
    by_rank = {data.get("rank"): data for data in events.get("connector.evidence", ())}
    built = Arm(
        name=name,
        begun=len(events.get("arm.begin", ())),
        ended=len(events.get("arm.end", ())),
        metrics=last.get("metrics.delta"),
        evidence=tuple(by_rank[rank] for rank in sorted(by_rank, key=lambda rank: -1 if rank is None else int(rank))),
        reset=last.get("reset.local"),
        overwrite=last.get("overwrite.free"),
    )
    for data in events.get("expect.hit", ()):
        built.expected[int(data["prompt"])] = Expected(int(data["local"]), int(data["external"]), str(data["digest"]))
    for sent in events.get("request.sent", ()):
        request, prompt = hashable(sent["request"]), int(sent["prompt"])
        done, failed = index.done.get(request, []), index.failed.get(request, [])
        if prompt in built.answers or len(done) > 1:
            built.repeated.append(prompt)
        if done:
            built.answers[prompt] = answer(done[-1])
        for data in failed:
            failure = Failure(str(data["error"]), str(data["message"]), str(sent["engine"]), "run", name, prompt)
            built.failures.append(failure)
        if not done and not failed:
            built.indeterminate.append(prompt)
    return built


def arms(index: Index, engines: set[Hashable], cell: Hashable, role: str) -> dict[str, Arm]:
    """Arms by name. A cell's arms may run on more than one engine; what one arm saw on two engines is put together,
    and then shows as an arm that began twice."""
    merged: dict[str, dict[str, list[Data]]] = {}
    for (engine, of_cell, name), events in index.arms.items():
        if engine in engines and of_cell == cell and name in ARMS_OF[role]:
            for kind, data in events.items():
                merged.setdefault(name, {}).setdefault(kind, []).extend(data)
    return {name: arm(index, name, merged[name]) for name in ARMS if name in merged}


def baseline(index: Index, key: str, attempt: int) -> Side | None:
    """The last baseline engine of this key and attempt that ran to its end, else the last one that began."""
    engines = index.of_key(key, BASELINE, attempt)
    begun = [e for e in engines if e.baseline_ended] or [e for e in engines if e.baseline_begun]
    if not begun:
        return None
    engine = begun[-1]
    whole = engine.baseline_begun and engine.baseline_ended
    return Side(BASELINE, str(engine.name), _table(engine), arms(index, {engine.name}, None, BASELINE), whole, True)


def failures(index: Index, cell: Hashable, plan_: Plan, attempt: int) -> list[Failure]:
    """Engines that failed this cell: the one it ran on, between its begin and end; when it never began, the last one
    started for it; and the last baseline engine when that never finished."""
    begins, ends = index.begins.get((cell, attempt), []), index.ends.get((cell, attempt), [])
    started = index.of_key(plan_.engine_key, CONNECTOR, attempt)[-1:]
    engines = [index.engines[engine] for _, engine in begins] or started
    first = min((position for position, _ in begins), default=-1)
    last = max((position for position, _ in ends), default=None)
    found = []
    for engine in engines:
        for position, data in engine.failed:
            if not ends or (first < position and (last is None or position < last)):
                found.append(_failure(engine, data))
    for engine in index.of_key(plan_.engine_key, BASELINE, attempt)[-1:]:
        if not engine.baseline_ended:
            found.extend(_failure(engine, data) for _, data in engine.failed)
    return found


def view(index: Index, cell: Hashable, attempt: int, plan_: Plan, *, strict: bool) -> CellView:
    begins, ends = index.begins.get((cell, attempt), []), index.ends.get((cell, attempt), [])
    engines = {name for name, engine in index.engines.items() if engine.attempt == attempt and engine.role != BASELINE}
    ran_on = index.engines[begins[-1][1]] if begins else Engine("")
    of_cell = [events for (engine, name, _), events in index.arms.items() if engine in engines and name == cell]
    connector = Side(
        CONNECTOR,
        str(ran_on.name),
        _table(ran_on),
        arms(index, engines, cell, CONNECTOR),
        bool(ends),
        ran_on.started >= 0,
    )
    return CellView(
        cell=str(cell),
        attempt=attempt,
        plan=plan_,
        begun=bool(begins),
        ended=bool(ends),
        connector=connector,
        baseline=baseline(index, plan_.engine_key, attempt),
        failures=tuple(failures(index, cell, plan_, attempt)),
        digests=tuple(taken(index, engines, cell, CONNECTOR) + _baseline_digests(index, plan_.engine_key, attempt)),
        fired=tuple(data for events in of_cell for data in events.get("fault.fired", ())),
        strict=strict,
    )


def taken(index: Index, engines: set[Hashable], cell: Hashable, role: str) -> list[Taken]:
    """Digests of one cell (or of the baseline engine), values that were written once filled in everywhere."""
    found = []
    for (engine, of_cell, name), events in index.arms.items():
        if engine not in engines or of_cell != cell:
            continue
        sent = {(hashable(data["request"]), data["prompt"]) for data in events.get("request.sent", ())}
        samples = {_read(data): data for data in events.get("digest.sample", ())}
        for data in events.get("digest.taken", ()):
            request = hashable(data["request"])
            values = data["values"]
            if values is None:
                values = index.digest_values.get(hashable(data.get("content")))
            known = (request, data["prompt"]) in sent
            found.append(Taken(role, str(name), known, {**data, "values": values}, samples.get(_read(data))))
    return found


def _read(data: Data) -> tuple[Hashable, Hashable, Hashable]:
    return hashable(data["request"]), hashable(data.get("nth", 1)), hashable(data.get("rank", 0))


def _baseline_digests(index: Index, key: str, attempt: int) -> list[Taken]:
    side = baseline(index, key, attempt)
    return [] if side is None else taken(index, {side.engine}, None, BASELINE)


def _table(engine: Engine) -> Mapping[str, object] | None:
    return engine.effective if isinstance(engine.effective, Mapping) else None


def _failure(engine: Engine, data: Data) -> Failure:
    return Failure(str(data["error"]), str(data["cause"]), str(engine.name), str(data["stage"]))
