"""Index -> one ``CellView``. Raises (TypeError, ValueError, KeyError, AttributeError) on values that make no sense; the
judge turns that into an inconclusive cell."""

from __future__ import annotations

from collections.abc import Hashable, Mapping

from e2e.base.program import Program, Site, Span, program_of
from e2e.judge.index import Data, Engine, Index, hashable
from e2e.judge.lift import lift
from e2e.judge.view import Answer, Arm, CellView, Expected, Failure, Plan, Ran, Side, Taken

#: Error of a request whose client went away; where no step says that it does, its answer is missing.
CLIENT_GONE = "ClientGone"


def program(data: Data) -> Program:
    """What ``plan.cell`` says that the cell does. ValueError where that is not what was planned, or can't be built."""
    table, digest = data.get("program"), data.get("program_digest")
    scenario = data.get("scenario", "replay")
    if table is None and digest is None and scenario == "replay":
        return lift(data)
    found = program_of(table)
    if found.digest != digest or found.scenario != scenario:
        raise ValueError("it is not the program whose digest was recorded")
    return found


def plan(data: Data, program_: Program) -> Plan:
    if not isinstance(data["settings"], Mapping) or not isinstance(data["expect"], Mapping):
        raise TypeError("plan.cell: settings and expect must be tables")
    return Plan(
        settings=data["settings"],
        engine_key=str(data["engine_key"]),
        adapter=str(data["adapter"]),
        expect=data["expect"],
        oracle=str(data["oracle"]),
        step=None if data["step"] is None else int(data["step"]),
        program=program_,
        blind=tuple(dict(blind) for blind in data["blind"]),
        counters=bool(data["counters"]),
        digests=bool(data["digests"]),
        fault=None if data["fault"] is None else str(data["fault"]),
        load_failure_policy=None if (policy := data.get("load_failure_policy")) is None else str(policy),
        lossy=bool(data.get("lossy")),
        untold=tuple(map(str, data.get("untold") or ())),
        noise=None if (noise := data.get("noise")) is None else float(noise),
        foreign=tuple(map(str, data.get("foreign") or ())),
        timed=bool(data.get("timed", True)),
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


def expected(data: Data) -> Expected:
    def span(most: object, least: object) -> Span:
        return Span(int(most if least is None else least), int(most))

    return Expected(
        span(data["local"], data.get("least_local")),
        span(data["external"], data.get("least_external")),
        int(data["tokens"]),
        str(data["digest"]),
    )


def arm(index: Index, name: str, events: Mapping[str, list[Data]]) -> Arm:
    """``events``: kind -> data, of one Send."""
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
        built.expected[int(data["prompt"])] = expected(data)
    for data in events.get("step.seen", ()):
        built.seen[str(data["what"])] = built.seen.get(str(data["what"]), 0) + int(data["count"])
    for sent in events.get("request.sent", ()):
        request, prompt = hashable(sent["request"]), int(sent["prompt"])
        done, failed = index.done.get(request, []), index.failed.get(request, [])
        if prompt in built.answers or len(done) > 1:
            built.repeated.append(prompt)
        if done:
            built.answers[prompt] = answer(done[-1])
        for data in failed:
            if data["error"] == CLIENT_GONE:
                built.gone.append(prompt)
                continue
            failure = Failure(str(data["error"]), str(data["message"]), str(sent["engine"]), "run", name, prompt)
            built.failures.append(failure)
        if not done and not failed:
            built.indeterminate.append(prompt)
    return built


def arms(index: Index, engines: set[Hashable], cell: Hashable, names: list[str]) -> dict[str, Arm]:
    """Arms by name. A site's arms may run on more than one engine; what one arm saw on two engines is put together,
    and then shows as an arm that began twice."""
    merged: dict[str, dict[str, list[Data]]] = {}
    for (engine, of_cell, name), events in index.arms.items():
        if engine in engines and of_cell == cell and name in names:
            for kind, data in events.items():
                merged.setdefault(name, {}).setdefault(kind, []).extend(data)
    return {name: arm(index, name, merged[name]) for name in names if name in merged}


class Cell:
    """One cell of one attempt, as its program sees it."""

    def __init__(self, index: Index, cell: Hashable, attempt: int, plan_: Plan) -> None:
        self.index, self.cell, self.attempt, self.plan = index, cell, attempt, plan_
        self.begins, self.ends = index.begins.get((cell, attempt), []), index.ends.get((cell, attempt), [])
        self.sides: dict[str, Side] = {}
        #: site -> (engines that its arms ran on, cell that these arms name)
        self.ran_on: dict[str, tuple[set[Hashable], Hashable]] = {}
        for site in plan_.program.sites:
            self._add(site)

    def _add(self, site: Site) -> None:
        lent = self.plan.program.lent(site)
        of_cell = self.cell if site.connector or not lent else None
        if not lent:
            engines = self.index.of_cell(self.cell, site.name, self.attempt)
            names, finished = {engine.name for engine in engines}, bool(self.ends)
        elif site.in_use:
            engines = self.index.of_cell(None, site.name, self.attempt)[-1:]
            names, finished = {engine.name for engine in engines}, bool(self.ends)
        elif site.connector:
            engines = [self.index.engines[self.begins[-1][1]]] if self.begins else []
            names, finished = self._lent(site), bool(self.ends)
        else:
            engines = self._played(site)
            if not engines:
                return
            names, finished = {engines[-1].name}, engines[-1].baseline_begun and engines[-1].baseline_ended
        sends = [send.name for send in self.plan.program.sends if send.site == site.name]
        ran = tuple(Ran(str(e.name), _table(e), e.started >= 0) for e in engines)
        found = arms(self.index, names, of_cell, sends)
        if site.in_use:
            found = {name: arm.in_use for name, arm in found.items()}
        self.sides[site.name] = Side(site, ran, found, finished, lent)
        self.ran_on[site.name] = names, of_cell

    def _lent(self, site: Site) -> set[Hashable]:
        """An engine whose start was not recorded may be the one that was lent."""
        engines = self.index.engines.values()
        return {e.name for e in engines if e.attempt == self.attempt and e.cell is None and e.role in (site.name, None)}

    def _played(self, site: Site) -> list[Engine]:
        """The last plain engine of this key and attempt that was sent all to its end, else the last one that began."""
        engines = self._of_key(site)
        return ([e for e in engines if e.baseline_ended] or [e for e in engines if e.baseline_begun])[-1:]

    def failures(self) -> list[Failure]:
        """Engines that failed this cell: its own; the one it was lent, between its begin and end; when it never began,
        the last one started for it; and the last plain engine when that was not sent all."""
        began = [self.index.engines[name] for _, name in self.begins]
        engines = began or [engine for site in self._lent_sites(True) for engine in self._of_key(site)[-1:]]
        first = min((position for position, _ in self.begins), default=-1)
        last = max((position for position, _ in self.ends), default=None)
        found = []
        for engine in engines:
            for position, data in engine.failed:
                if not self.ends or (first < position and (last is None or position < last)):
                    found.append(_failure(engine, data))
        for site in self._lent_sites(False):
            for engine in self._of_key(site)[-1:]:
                if not engine.baseline_ended:
                    found.extend(_failure(engine, data) for _, data in engine.failed)
        for engine in self.index.engines.values():
            if engine.cell is not None and (engine.cell, engine.attempt) == (self.cell, self.attempt):
                found.extend(_failure(engine, data) for _, data in engine.failed)
        return found

    def _of_key(self, site: Site) -> list[Engine]:
        return self.index.of_key(self.plan.engine_key, site.name, self.attempt)

    def _lent_sites(self, connector: bool) -> list[Site]:
        program_ = self.plan.program
        return [site for site in program_.sites if site.connector is connector and program_.lent(site)]

    def digests(self) -> list[Taken]:
        places = self.ran_on.items()
        return [taken for site, (names, cell) in places for taken in _taken(self.index, names, cell, site)]

    def acts(self) -> list[tuple[str, Data]]:
        """In this attempt, in order."""
        first = min((position for position, _ in self.begins), default=None)
        last = max((position for position, _ in self.ends), default=None)
        return [
            (kind, data)
            for position, kind, data in self.index.acts.get(self.cell, ())
            if first is not None and first < position and (last is None or position < last)
        ]

    def own(self) -> list[tuple[str, str, Mapping[str, list[Data]]]]:
        """(site, arm, kind -> data) of all that names this cell and is of this attempt."""
        engines = self.index.engines
        return [
            (str(engines[engine].role or ""), str(name), events)
            for (engine, of_cell, name), events in self.index.arms.items()
            if of_cell == self.cell and engine in engines and engines[engine].attempt == self.attempt
        ]


def view(index: Index, name: Hashable, attempt: int, plan_: Plan, *, strict: bool) -> CellView:
    cell = Cell(index, name, attempt, plan_)
    sends = {send.where for send in plan_.program.sends}
    return CellView(
        cell=str(name),
        attempt=attempt,
        plan=plan_,
        begun=bool(cell.begins),
        ended=bool(cell.ends),
        sides=cell.sides,
        failures=tuple(cell.failures()),
        digests=tuple(cell.digests()),
        fired=tuple(data for _, _, events in cell.own() for data in events.get("fault.fired", ())),
        unplanned=tuple(sorted({(site, arm) for site, arm, _ in cell.own() if site and (site, arm) not in sends})),
        acts=tuple(cell.acts()),
        strict=strict,
    )


def _taken(index: Index, engines: set[Hashable], cell: Hashable, role: str) -> list[Taken]:
    """Digests of one site, values that were written once filled in everywhere."""
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


def _table(engine: Engine) -> Mapping[str, object] | None:
    return engine.effective if isinstance(engine.effective, Mapping) else None


def _failure(engine: Engine, data: Data) -> Failure:
    return Failure(str(data["error"]), str(data["cause"]), str(engine.name), str(data["stage"]))
