"""One attempt at a run: engine by engine, cell by cell, arm by arm, and what looks at each."""

from __future__ import annotations

import platform
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from importlib.metadata import version
from pathlib import Path

import psutil

from e2e.base import redact
from e2e.base.cell import Cell
from e2e.base.connector import Adapter
from e2e.base.errors import EngineCrashed, EngineError, EngineTimeout
from e2e.base.event import ARMS, SCHEMA, Record
from e2e.grid.cells import Grid
from e2e.material import Material
from e2e.observe.digests import DigestWindow
from e2e.observe.effective import observe_engine
from e2e.observe.evidence import EvidenceWindow, Rpc
from e2e.observe.metrics import MetricsWindow
from e2e.plan import KeyPlan, check_room
from e2e.replay import arms
from e2e.replay.client import EngineClient
from e2e.replay.prompts import Encode, build_prompts
from e2e.report.progress import Progress
from e2e.settings.settings import Settings
from e2e.settings.world import (
    commit,
    engine_environment,
    environment,
    program,
    secrets,
    shared_memory,
)
from e2e.stack.attach import AttachLauncher
from e2e.stack.launcher import Engine, Launcher
from e2e.stack.ledger import Ledger
from e2e.stack.process import ProcessLauncher
from e2e.stack.spec import EngineSpec
from e2e.stack.store import Store
from e2e.stack.zygote import Zygote
from e2e.standing import Standing

#: How long to wait for the end of an engine that has just answered with an error, in seconds.
SETTLE_S = 10.0


@dataclass(frozen=True)
class Live:
    """A ready engine with what looks at it. ``name``: under which it is recorded; the engine's own, but where keys
    share a baseline engine. ``store``: None for an engine of somebody else."""

    name: str
    engine: Engine
    client: EngineClient
    metrics: MetricsWindow
    evidence: EvidenceWindow
    digests: DigestWindow
    store: Store | None
    effective: Mapping[str, object]


@dataclass(frozen=True)
class Name:
    """Of one attempt at a run."""

    run_id: str
    attempt: int

    @classmethod
    def new(cls, attempt: int = 1) -> Name:
        return cls(f"{datetime.now(timezone.utc):%Y%m%d-%H%M%S}-{uuid.uuid4().hex[:8]}", attempt)


@dataclass
class Flow:
    """One attempt at a run."""

    settings: Settings
    adapter: Adapter
    made_of: Material
    standing: Standing
    progress: Progress
    name: Name
    ledger: Ledger
    zygote: Zygote
    started: int = 0
    hidden: frozenset[str] = frozenset()

    @property
    def run_id(self) -> str:
        return self.name.run_id

    @property
    def attempt(self) -> int:
        return self.name.attempt

    @property
    def record(self) -> Record:
        return self.standing.record

    def begin(self, grid: Grid, plans: Sequence[KeyPlan] = ()) -> None:
        self.record(
            "run.begin",
            run_id=self.run_id, attempt=self.attempt, schema=SCHEMA, command=["maru-e2e", *self.settings.argv],
            versions=_versions(), machine=_machine(), settings=self.settings.as_json(),
            wall_time=datetime.now(timezone.utc).isoformat(timespec="seconds"), program=program(),
            folder=str(Path.cwd()),
        )  # fmt: skip
        whose = f"Connector {self.adapter.name}: {self.adapter.description}."
        self._say(whose)
        self.record("note", text=whose)
        for invalid in grid.invalid:
            self.record("plan.invalid", settings=dict(invalid.settings), why=invalid.why)
        if grid.collapsed:
            self.record(
                "note", text=f"Connector {self.adapter.name} has no axis {', '.join(grid.collapsed)}: one cell for all."
            )
        for planned in plans:
            self.plan_told(planned)

    def plan_told(self, planned: KeyPlan) -> None:
        for why in planned.lengths.why:
            self.record("note", text=f"{planned.key}: {why}")
        for cell in planned.cells:
            self.record("plan.cell", **planned.event(cell, attempt=self.attempt))

    # engine keys

    def engine_keys(self, plans: Sequence[KeyPlan]) -> None:
        """Runs the baseline engine that they share, then each key's cells; an engine that fails ends one key only."""
        for planned in plans if self.settings.attach else self._baselines(plans):
            self.engine_key(planned)

    def engine_key(self, planned: KeyPlan) -> None:
        todo = list(planned.cells)
        try:
            while todo:
                todo = self._cells(planned, todo)
        except EngineError as error:
            self.gave_up(planned.key, planned.cells, error)

    def gave_up(self, what: str, cells: Iterable[Cell], error: EngineError) -> None:
        """Judges those of its cells that were not."""
        self._say(f"{what}: {error}")
        self._judge(cell for cell in cells if not self.standing.knows(cell.id))

    def _judge(self, cells: Iterable[Cell]) -> None:
        for cell in cells:
            self.progress.judged(self.standing.judged(cell.id))

    # engines

    @contextmanager
    def _engine(self, plan: KeyPlan, role: str) -> Iterator[Live]:
        """A ready, observed and warm engine; stopped at the end, whatever happened."""
        self.started += 1
        name = f"{plan.key}.{role}.{self.attempt}.{self.started}"
        doing = "attaching to" if self.settings.attach else "starting"
        with ExitStack() as stack:
            with self.progress.step("start", f"{doing} {role} engine {plan.key}"):
                live = self._started(plan, role, name, stack)
            try:
                yield live
            except EngineError:
                live.engine.check(settle_s=SETTLE_S)  # if it died of it, that is the error
                raise

    def _started(self, plan: KeyPlan, role: str, name: str, stack: ExitStack) -> Live:
        """``stack`` stops whatever this starts."""
        log_path = self.settings.out / "logs" / f"{name}.log"
        stack.callback(self.ledger.hide, log_path.with_suffix(""))
        store = None if self.settings.attach else stack.enter_context(self._store(name, log_path.parent))
        spec = plan.spec(role, name=name, model=self.made_of.model, pool_dir=str(store.folder) if store else "")
        self._know(spec)
        self.ledger.confide(log_path.with_suffix(""), self.hidden)
        if store:
            spec = self._on(store, spec)
        engine = stack.enter_context(self._launcher().start(spec, log_path=log_path, record=self.record))
        if store:
            stack.enter_context(store.watched(lambda: engine.stop(limit_s=3.0)))
        engine.wait_ready(self.settings.start_limit_s)
        try:
            return self._observed(plan, spec, engine, store)
        except EngineError as error:
            engine.check(settle_s=SETTLE_S)
            self.record(
                "engine.failed", engine=spec.name, stage="prepare", error=type(error).__name__, cause=str(error),
                log_tail=engine.log_tail(),
            )  # fmt: skip
            raise

    def _store(self, name: str, log_dir: Path) -> Store:
        return Store(
            name, parent=shared_memory(), ledger=self.ledger, environ=environment(), log_dir=log_dir, record=self.record
        )

    def _on(self, store: Store, spec: EngineSpec) -> EngineSpec:
        """The engine on this store. A server that can't be started is recorded as its failure: it can't be either."""
        if spec.connector is None:
            return spec
        in_container = self.settings.launcher == "docker"  # from where no server of ours is reached
        connector = spec.connector.alone() if in_container else spec.connector
        try:
            return replace(spec, connector=store.give(connector))
        except EngineError as error:
            server = store.services[-1]
            self.record(
                "engine.start", engine=spec.name, engine_key=spec.engine_key, role=spec.role, attempt=self.attempt,
                argv=list(server.spec.argv), launcher="service", log=str(server.log_path),
            )  # fmt: skip
            self._engine_failed(spec.name, "start", error)
            raise

    def _engine_failed(self, name: str, stage: str, error: EngineError) -> None:
        self.record(
            "engine.failed", engine=name, stage=stage, error=type(error).__name__, cause=error.cause,
            log_tail=error.log_tail,
        )  # fmt: skip

    def _observed(self, plan: KeyPlan, spec: EngineSpec, engine: Engine, store: Store | None) -> Live:
        """Asks a ready engine what it is, builds the key's prompts if they aren't yet, and warms it up."""
        attached, longest = self.made_of.attached, max(plan.lengths.lengths)
        key = attached.api_key if attached else None
        client = EngineClient(
            engine.url, timeout_s=self.settings.request_limit_s, api_key=key, why_late=engine.stall
        )  # fmt: skip
        build_of = spec.connector.build if spec.connector else {}
        config = observe_engine(client, spec.name, self.record, build=build_of)
        check_room(plan, config["effective"])
        encode = self.made_of.encode or client.tokenize
        build(plan, self.made_of, self.name, encode)
        warm = arms.warm_up_prompt(
            self.made_of.texts, encode, step=plan.lengths.step, longest=longest, nonce=f"{self.run_id}/{spec.name}"
        )
        arms.warm_up(client, warm)
        witness = self._witness(spec, client, engine, config["effective"])
        return self._looking(spec.name, engine, client, witness, store, config["effective"])

    def _looking(
        self, name: str, engine: Engine, client: EngineClient, witness: Rpc, store: Store | None,
        effective: Mapping[str, object],
    ) -> Live:  # fmt: skip
        live = Live(
            name, engine, client,
            MetricsWindow(client.metrics, self.record, engine=name),
            EvidenceWindow(witness, self.record, engine=name),
            DigestWindow(client.collective_rpc, self.record, engine=name), store, effective,
        )  # fmt: skip
        if self.settings.digests:
            live.digests.start()
        return live

    def _witness(self, spec: EngineSpec, client: EngineClient, engine: Engine, effective) -> Rpc:
        """Who is asked what the connector did: the worker, or whom the adapter names where it can't tell."""
        if spec.connector is None or spec.connector.witness is None or self.settings.attach:
            return client.collective_rpc
        witness = spec.connector.witness
        return witness.reader(log_path=engine.log_path, effective=effective, **witness.about)

    def _launcher(self) -> Launcher:
        if self.made_of.attached:
            return AttachLauncher(self.made_of.attached, attempt=self.attempt)
        if self.settings.launcher == "docker":
            from e2e.stack.container import ContainerLauncher  # the Docker client takes half a second to import

            return ContainerLauncher(
                ledger=self.ledger, image=self.settings.image, environ=environment(), attempt=self.attempt,
                pool_bytes=self.settings.pool_bytes,
            )  # fmt: skip
        return ProcessLauncher(
            ledger=self.ledger, environ=engine_environment(self.made_of.python), attempt=self.attempt,
            python=self.made_of.python, zygote=self.zygote if self.settings.start == "fork" else None,
        )  # fmt: skip

    # arms

    def baseline(self, plan: KeyPlan) -> None:
        """The baseline arms of one key, on an engine of its own."""
        with self._engine(plan, "baseline") as live:
            self._baseline_arms(plan, live)

    def _baselines(self, plans: Sequence[KeyPlan]) -> list[KeyPlan]:
        """The baseline arms of all keys on one engine, as long as it lives; returns the keys whose arms ended."""
        todo, ended = list(plans), []
        while todo:
            try:
                with self._engine(todo[0], "baseline") as live:
                    self._baseline_arms(todo[0], live)
                    ended.append(todo.pop(0))
                    while todo:
                        self._baseline_arms(todo[0], self._lent(live, todo[0]))
                        ended.append(todo.pop(0))
            except EngineError as error:
                failed = todo.pop(0)
                self.gave_up(failed.key, failed.cells, error)
        return ended

    def _lent(self, live: Live, plan: KeyPlan) -> Live:
        """The engine under a name of this key, to which what it answers from now on belongs."""
        self.started += 1
        name = f"{plan.key}.baseline.{self.attempt}.{self.started}"
        self.record(
            "engine.start", engine=name, engine_key=plan.key, role="baseline", attempt=self.attempt, argv=[],
            launcher=f"shared: {live.engine.name}", log=str(live.engine.log_path or ""),
        )  # fmt: skip
        self.record("engine.config", engine=name, effective=live.effective)
        return self._looking(name, live.engine, live.client, live.client.collective_rpc, live.store, live.effective)

    def _baseline_arms(self, plan: KeyPlan, live: Live) -> None:
        place = {"engine": live.name, "engine_key": plan.key, "attempt": self.attempt}
        with self.progress.step("baseline", f"replaying on the baseline engine {plan.key}"):
            self.record("baseline.begin", **place)
            try:
                self._arms(plan, live, None, ARMS[:2])
            except EngineError as error:
                if live.name != live.engine.name:  # the engine's own failure stands under its own name
                    self._engine_failed(live.name, "run", error)
                raise
            self.record("baseline.end", **place)

    def _cells(self, plan: KeyPlan, cells: Sequence[Cell]) -> list[Cell]:
        """Runs cells on one engine; returns those that are left when one of them brought the engine down."""
        with self._engine(plan, "connector") as live:
            for number, cell in enumerate(cells):
                with self.progress.step("cell", f"replaying {cell.id}"):
                    usable = self._cell(plan, live, cell)
                self._judge([cell])
                if not usable:
                    return list(cells[number + 1 :])
        return []

    def _cell(self, plan: KeyPlan, live: Live, cell: Cell) -> bool:
        """Replays one cell. False: this engine is of no more use, and what is left needs another one."""
        place = {"cell": cell.id, "engine": live.name, "attempt": self.attempt}
        self.record("cell.begin", **place)
        try:
            self._arms(plan, live, cell, ARMS)
        except EngineError as error:
            self._say(f"{cell.id}: {error}")
            if not error.recorded:
                self.record("note", text=f"{cell.id}: {error}")
            if not self._serves(live) or isinstance(error, (EngineCrashed, EngineTimeout)):
                return False
        self.record("cell.end", **place)
        try:
            self._forget(live)
        except EngineError as error:
            self._say(f"after {cell.id}: {error}")
            return False
        return True

    def _serves(self, live: Live) -> bool:
        try:
            self._check_store(live)
            live.engine.check(settle_s=SETTLE_S)
        except EngineCrashed as crash:
            self._say(str(crash))
            return False
        return True

    def _check_store(self, live: Live) -> None:
        """Raises EngineCrashed for a server that died or is mute: the engine's failure, whose requests hung on it."""
        try:
            if live.store:
                live.store.check()
        except EngineCrashed as crash:
            self._engine_failed(live.name, "run", crash)
            raise

    def _arms(self, plan: KeyPlan, live: Live, cell: Cell | None, names: Sequence[str]) -> None:
        """``cell`` is None on the baseline engine, whose arms belong to every cell of the key."""
        for number, arm in enumerate(names):
            place = {"cell": cell.id if cell else None, "arm": arm}
            if arm.startswith("external"):
                seed = (self.attempt * 1009 + self.started) * 1009 + number
                arms.between_arms(
                    live.client, engine=live.name, record=self.record, seed=seed, at_work=live.metrics.at_work,
                    **place,
                )  # fmt: skip
            with ExitStack() as looking:
                looking.enter_context(live.metrics.arm(**place, requests=len(plan.prompts)))
                if cell:
                    looking.enter_context(live.evidence.arm(**place))
                looking.enter_context(live.digests.arm(**place, plant=self._plant(cell, arm)))
                arms.run_arm(
                    live.client, engine=live.name, **place, prompts=plan.prompts,
                    predictions=plan.served(arm, cell), params=self.adapter.request_params(cell) if cell else None,
                    salt=f"{self.run_id}.{self.attempt}.{cell.id if cell else 'baseline'}", record=self.record,
                    concurrency=plan.concurrency, limit_s=self.settings.request_limit_s,
                    max_tokens=self.settings.max_tokens,
                )  # fmt: skip

    def _plant(self, cell: Cell | None, arm: str) -> str | None:
        """The fault to plant around a connector that can't plant it itself: into what it has loaded."""
        around = cell and arm.startswith("external") and not self.adapter.abilities.plants_faults
        return cell.get("fault") if around else None

    def _forget(self, live: Live) -> None:
        """Empties a pool of our own, so that it need not hold more than one cell. Never somebody else's store."""
        if self.adapter.abilities.owns_store and not self.settings.attach:
            ok, _ = live.client.reset_prefix_cache(external=True)
            if ok is False:
                self.record("note", text=f"{live.name}: the connector's pool was not emptied after a cell.")

    def _say(self, text: str) -> None:
        self.progress.say(redact.without(text, self.hidden))

    def _know(self, spec: EngineSpec) -> None:
        """What an engine was told in confidence, and may say aloud."""
        told = [spec.settings_env(), spec.connector.extra if spec.connector else {}]
        self.hidden |= secrets(self.settings) | redact.secrets(told)


def build(planned: KeyPlan, made_of: Material, name: Name, encode: Encode | None) -> None:
    """The prompts of an engine key, once there is somebody who tells tokens."""
    if encode and not planned.prompts:
        nonce = f"{name.run_id}/{name.attempt}/{planned.key}"
        planned.prompts.extend(build_prompts(made_of.texts, encode, lengths=planned.lengths.lengths, nonce=nonce))


def _versions() -> dict[str, str]:
    found = {"maru-e2e": version("maru-e2e"), "python": platform.python_version(), "commit": commit()}
    return {name: text for name, text in found.items() if text}


def _machine() -> dict[str, object]:
    return {
        "system": platform.platform(),
        "processor": platform.processor() or platform.machine(),
        "cores": psutil.cpu_count(logical=False) or psutil.cpu_count(),
        "threads": psutil.cpu_count(),
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
    }
