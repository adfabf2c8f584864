"""The real world: engines are launched, asked what they are, warmed up and looked at; stores lie in shared memory."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field, replace

from e2e.base import redact
from e2e.base.errors import EngineError
from e2e.base.event import Record, engine_failed
from e2e.base.program import Break, Site
from e2e.fit import check_room
from e2e.material import Material
from e2e.observe.effective import observe_engine
from e2e.observe.evidence import Rpc
from e2e.part import KeyPart, lora
from e2e.play.nemesis import broken
from e2e.play.prompting import Prompts
from e2e.play.site import SETTLE_S, LiveEngine
from e2e.play.world import Scene
from e2e.replay import arms
from e2e.replay.client import EngineClient
from e2e.settings.settings import Settings
from e2e.settings.world import engine_environment, environment, secrets, shared_memory
from e2e.stack.attach import AttachLauncher
from e2e.stack.identities import adapter, other_weights
from e2e.stack.launcher import Engine, Launcher
from e2e.stack.ledger import Ledger
from e2e.stack.process import ProcessLauncher
from e2e.stack.spec import EngineSpec
from e2e.stack.store import Store
from e2e.stack.zygote import Zygote


@dataclass
class LiveWorld:
    """See ``world.World``. ``hidden``: what engines were told in confidence, and may say aloud."""

    settings: Settings
    made_of: Material
    record: Record
    prompts: Prompts
    run_id: str
    attempt: int
    ledger: Ledger
    zygote: Zygote
    hidden: frozenset[str] = frozenset()
    _hiding: threading.Lock = field(default_factory=threading.Lock)

    def without_secrets(self, text: str) -> str:
        return redact.without(text, self.hidden)

    def end(self) -> None:
        self.ledger.kill()

    # stores

    @contextmanager
    def store(self, part: KeyPart, name: str) -> Iterator[Store | None]:
        if self.settings.attach:  # what an engine of somebody else stores into is not ours
            yield None
            return
        log_dir = self.settings.out / "logs"
        with ExitStack() as stack:
            stack.callback(self.ledger.hide, log_dir / name)
            yield stack.enter_context(
                Store(
                    name, parent=shared_memory(), ledger=self.ledger, environ=environment(), log_dir=log_dir,
                    record=self.record,
                )
            )  # fmt: skip

    def broken(
        self, step: Break, engines: Mapping[str, LiveEngine], stores: Mapping[str, Store]
    ) -> AbstractContextManager[object]:
        return broken(step, engines, stores)

    # engines

    @contextmanager
    def engine(self, scene: Scene[KeyPart], site: Site, name: str, store: Store | None) -> Iterator[LiveEngine]:
        logs = self.settings.out / "logs" / name
        with ExitStack() as stack:
            stack.callback(self.ledger.hide, logs)
            store = store or stack.enter_context(self.store(scene.part, name))
            folder = str(store.folder) if store else ""
            model, python = self.made_of.model, self.made_of.python
            seen = other_weights(model, site.weights, python=python) if site.weights else model
            spec = scene.part.spec(site, name=name, model=seen, pool_dir=folder)
            seeds = scene.program.adapters(site)
            adapters = {lora(seed): adapter(model, seed, python=python) for seed in seeds}
            spec = replace(spec, cell=scene.cell, adapters=adapters)
            with self._hiding:
                self.hidden |= secrets(self.settings) | redact.secrets(_confidences(spec))
            self.ledger.confide(logs, self.hidden)
            if store:
                self.ledger.confide(logs.with_name(store.name), self.hidden)  # one that engines share has its own logs
                spec = self._on(store, spec)
            engine = stack.enter_context(
                self._launcher().start(spec, log_path=logs.with_name(f"{name}.log"), record=self.record)
            )
            if store:
                store.users.append(engine)
                stack.enter_context(store.watched(lambda: engine.stop(limit_s=3.0)))
            engine.wait_ready(self.settings.start_limit_s)
            yield self._prepared(scene, site, spec, engine, store)

    def shared(self, scene: Scene[KeyPart], site: Site, name: str, engine: LiveEngine) -> LiveEngine:
        self.prompts.build(scene.part.key, scene.part.program, engine.client.tokenize)
        self.record(
            "engine.start", engine=name, engine_key=scene.part.key, role=site.name, attempt=self.attempt, argv=[],
            launcher=f"shared: {engine.engine.name}", log=str(engine.engine.log_path or ""),
            **({"cell": scene.cell} if scene.cell else {}),
        )  # fmt: skip
        self.record("engine.config", engine=name, effective=engine.effective)
        return replace(engine, name=name, site=site, _free=True, _ended=False)

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
            engine_failed(self.record, spec.name, "start", error)
            raise

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

    def _prepared(
        self, scene: Scene[KeyPart], site: Site, spec: EngineSpec, engine: Engine, store: Store | None
    ) -> LiveEngine:  # fmt: skip
        """Asks a ready engine what it is, builds the prompts if they aren't yet, and warms it up."""
        attached = self.made_of.attached
        client = EngineClient(
            engine.url, timeout_s=self.settings.request_limit_s, api_key=attached.api_key if attached else None,
            why_late=engine.stall,
        )  # fmt: skip
        try:
            build = spec.connector.build if spec.connector else {}
            effective = observe_engine(client, spec.name, self.record, build=build)["effective"]
            check_room(scene.part, site, effective)
            on_gpu = str(effective.get("device")).startswith("cuda")
            self._warm_up(scene.part, site, spec.name, client, all_lengths=on_gpu and spec.connector is None)
            return LiveEngine(
                spec.name, site, engine, client, self._witness(spec, client, engine, effective), store, effective,
                scene.part.adapter, self.settings, self.prompts, self.record, f"{self.run_id}.{self.attempt}",
            )  # fmt: skip
        except EngineError as error:
            engine.check(settle_s=SETTLE_S)
            engine_failed(self.record, spec.name, "prepare", error, cause=str(error), log_tail=engine.log_tail())
            raise

    def _warm_up(
        self, part: KeyPart, site: Site, name: str, client: EngineClient, *, all_lengths: bool
    ) -> None:  # fmt: skip
        """``all_lengths``: of every prompt. On a GPU the first of a length may take some tenths of a second more, and
        what all others are held against would pay for it; an engine with a connector would store them."""
        encode = self.made_of.encode or client.tokenize
        self.prompts.build(part.key, part.program, encode)
        for prompt in arms.warm_up_prompts(
            self.made_of.texts, encode, step=part.lengths.step, longest=part.longest_at(site),
            more=[text.tokens for text in part.program.texts] if all_lengths else (), nonce=f"{self.run_id}/{name}",
        ):  # fmt: skip
            arms.warm_up(client, prompt)

    def _witness(self, spec: EngineSpec, client: EngineClient, engine: Engine, effective: Mapping) -> Rpc:
        """Who is asked what the connector did: the worker, or whom the adapter names where it can't tell."""
        if spec.connector is None or spec.connector.witness is None or self.settings.attach:
            return client.collective_rpc
        witness = spec.connector.witness
        return witness.reader(log_path=engine.log_path, effective=effective, **witness.about)


def _confidences(spec: EngineSpec) -> list[object]:
    return [spec.settings_env(), spec.connector.extra if spec.connector else {}]
