"""A real engine with its client, its store and what looks at it: counters, evidence and digests."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from threading import Event

from e2e.base.cell import Cell
from e2e.base.connector import Adapter
from e2e.base.errors import EngineCrashed, EngineError
from e2e.base.event import Record, engine_failed
from e2e.base.program import Happened, Send, Site
from e2e.observe.digests import DigestWindow
from e2e.observe.evidence import EvidenceWindow, Rpc
from e2e.observe.metrics import MetricsWindow
from e2e.part import KeyPart, lora
from e2e.play.prompting import Prompts
from e2e.play.world import Scene
from e2e.replay import arms
from e2e.replay.client import EngineClient
from e2e.settings.settings import Settings
from e2e.stack.launcher import Engine
from e2e.stack.store import Store

#: How long to wait for the end of an engine that has just answered with an error, in seconds.
SETTLE_S = 10.0
#: Characters of a cache_salt that vLLM takes (0.32).
LONGEST_SALT = 128


def salted(*words: str) -> str:
    """One word of them, which vLLM takes."""
    salt = ".".join(filter(None, words))
    if len(salt) <= LONGEST_SALT:
        return salt
    return f"{salt[: LONGEST_SALT - 33]}.{hashlib.blake2b(salt.encode(), digest_size=16).hexdigest()}"


@dataclass
class LiveEngine:
    """See ``world.Engine``. ``name``: its own, or where keys share it that of one of them. ``witness``: who is asked
    what the connector did. ``store``: None for an engine of somebody else. ``salt``: of this attempt at this run."""

    name: str
    site: Site
    engine: Engine
    client: EngineClient
    witness: Rpc
    store: Store | None
    effective: Mapping[str, object]
    adapter: Adapter
    settings: Settings
    prompts: Prompts
    record: Record
    salt: str
    _free: bool = True
    _ended: bool = False
    #: of the Send that is looked at, or was last
    _place: Mapping[str, object] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.metrics = MetricsWindow(self.client.metrics, self.record, engine=self.name)
        self.evidence = EvidenceWindow(self.witness, self.record, engine=self.name)
        self.digests = DigestWindow(self.client.collective_rpc, self.record, engine=self.name)
        if self.settings.digests:
            self.digests.start()

    @contextmanager
    def looking(self, scene: Scene[KeyPart], send: Send, *, forgiving: bool) -> Iterator[None]:
        place, cell = {"cell": scene.cell, "arm": send.name}, _cell(scene)
        self._place = {"engine": self.name, **place}
        try:
            with ExitStack() as windows:
                windows.enter_context(self.metrics.arm(**place, requests=0 if send.goes else len(send.texts)))
                if self.site.connector:
                    windows.enter_context(self.evidence.arm(**place))
                windows.enter_context(self.digests.arm(**place, plant=self._plant(cell, send)))
                yield
        except EngineError as error:
            if not (forgiving and self._forgives(error)):
                raise
            self.record("note", text=f"{send.name} can't be looked at any more: {error}", engine=self.name)

    def _plant(self, cell: Cell | None, send: Send) -> str | None:
        """The fault to plant around a connector that can't plant it itself: into what it has loaded."""
        around = cell and send.external and not self.adapter.abilities.plants_faults
        return cell.get("fault") if around else None

    def send(self, scene: Scene[KeyPart], send: Send, *, forgiving: bool) -> None:
        cell, key = _cell(scene), scene.part.key
        self._tell(scene, send)
        salt = salted(self.salt, scene.cell or self.site.name, send.salt)
        how = arms.Sending(
            engine=self.name, cell=scene.cell, arm=send.name, at_once=send.at_once, salt=salt, gone_s=send.gone_s,
            gone_tokens=send.gone_tokens, spread_s=send.spread_s, model=lora(send.lora) if send.lora else None,
            params=self.params(cell, send) if cell and self.site.connector else None,
            forgives=lambda error: forgiving and self._forgives(error),
            limit_s=self.settings.request_limit_s, max_tokens=send.answer or self.settings.max_tokens,
        )  # fmt: skip
        answers = arms.run_arm(
            self.client, how, prompts=self.prompts.of(key, scene.cell, scene.program, send),
            hits=scene.program.hits(send), record=self.record,
        )  # fmt: skip
        self.prompts.answered(key, scene.cell, send, answers)
        if send.goes:
            self.metrics.at_work()  # that its client left is known to the engine some moments later

    def _tell(self, scene: Scene[KeyPart], send: Send) -> None:
        """What the player itself sees of that which is to happen."""
        place = {"engine": self.name, "cell": scene.cell, "arm": send.name}
        users = [] if self.store is None else [user for user in self.store.users if user is not self.engine]
        running = sum(user.alive() for user in users)
        seen = {"engines_beside": running, "engines_ended": len(users) - running}
        for claim in send.claims:
            if isinstance(claim, Happened) and claim.what in seen:
                self.record("step.seen", **place, what=claim.what, count=seen[claim.what])

    def _forgives(self, error: EngineError) -> bool:
        """Where something is broken on purpose, requests may fail, and an engine that was ended may be gone."""
        return self._ended or not isinstance(error, EngineCrashed)

    def params(self, cell: Cell, send: Send) -> dict[str, object] | None:
        """That go with each of its requests."""
        return self.adapter.request_params(cell.at({**self.site.settings, **send.settings}))

    def forget(self, scene: Scene[KeyPart], before: str) -> None:
        place = {"engine": self.name, "cell": scene.cell, "arm": before}
        self._free = arms.forget(self.client, place=place, record=self.record)

    def scribble(self, scene: Scene[KeyPart], before: str) -> None:
        place = {"engine": self.name, "cell": scene.cell, "arm": before}
        arms.scribble(
            self.client, place=place, record=self.record, free=self._free, at_work=self.metrics.at_work
        )  # fmt: skip

    def empty(self) -> bool | None:
        return self.client.reset_prefix_cache(external=True)[0]

    def tidy(self) -> None:
        if self.adapter.abilities.owns_store and not self.settings.attach and self.empty() is False:
            self.record("note", text=f"{self.name}: the connector's pool was not emptied after a cell.")

    def check(self) -> None:
        if self._ended:
            return
        try:
            if self.store:
                self.store.check()
        except EngineCrashed as crash:  # the engine's requests hung on its server
            engine_failed(self.record, self.name, "run", crash)
            raise
        self.engine.check(settle_s=SETTLE_S)

    def end(self, *, killed: bool, amid: str = "") -> None:
        if amid:
            self._under_way(amid)
            Event().wait(self.site.slow_s / 2)  # the blow falls in the midst of a unit, not where it has just begun
        self._ended = True
        if killed:
            self.engine.kill()
        if amid:
            for work, times in self._under_way().items():
                self.record("step.seen", **self._place, what=f"{work}s_cut_short", count=times)

    def _under_way(self, work: str = "") -> Mapping[str, int]:
        if self.store is None:
            raise EngineError(f"{self.name} has no store, so nobody can tell when it loads or stores.")
        return self.store.under_way(str(self.effective.get("engine_id", "")), work)


def _cell(scene: Scene[KeyPart]) -> Cell | None:
    return next((cell for cell in scene.part.cells if cell.id == scene.cell), None)
