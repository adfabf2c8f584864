"""What an adapter says about one cell; the stack turns it into an engine, replay into requests."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from e2e.base.cell import Cell
from e2e.base.checkup import Line

#: ``{maru-server.address}`` in a string of a service or of a connector's extra config or environment
_PLACE = re.compile(r"\{(?P<name>[a-z][a-z0-9-]*)\.(?P<what>host|port|address)\}")


#: Fault class of a connector that says that it took the overlap path, and not whether any layer was waited for.
OVERLAP_UNSEEN = "overlap did not happen"


@dataclass(frozen=True, kw_only=True)
class ServiceSpec:
    """A server that has to run beside an engine, started before it and ended after it.

    ``argv``: one item a word, or nothing for a server that somebody else runs at ``address`` (host:port). ``ready``,
    ``useless``: patterns of log lines that say it listens, and that it never will be of use. ``probe``: asks it at an
    address whether it really works, and raises EngineError until it does. ``need``: bytes that it must be able to hand
    out. ``within``: ``argv`` -> what starts it in surroundings of its own; equal where the surroundings are.
    ``tool``: words of a program that answers with the names of what the server's pool holds, as JSON, when ``list`` is
    added, or a damage (delete, lose, flip, tear, truncate, replace) and the names that it strikes; ``fill`` leaves no
    room and ``drain`` gives it back; ``under-way``, an engine's id and maybe a kind of work tells how much of each kind
    that engine has begun and not ended, as soon as there is any of that one, or after some seconds. ``back_s``: so many
    seconds after it was mended its engines have found it again. ``optional``: where there
    is no such server, its place is empty, and the connector starts its own. ``env``: PYTHONPATH is put
    in front of what is there. ``cure``: what to do when it fails.
    """

    name: str
    argv: tuple[str, ...] = ()
    address: str | None = None
    ready: str | None = None
    useless: str | None = None
    probe: Callable[[ServiceSpec, str], None] | None = None
    need: int = 0
    within: Callable[[list[str]], list[str]] | None = None
    tool: tuple[str, ...] = ()
    back_s: float = 0.0
    optional: bool = False
    env: Mapping[str, str] = field(default_factory=dict)
    limit_s: float = 30.0
    cure: str = ""


@dataclass(frozen=True, kw_only=True)
class Witness:
    """Who tells what the connector did, where nothing can be asked of it in the worker. ``reader``: called once for an
    engine with ``log_path`` (Path or None), ``effective`` (as in event ``engine.config``) and the values of ``about``;
    what it returns is then asked as the worker extension is, ``("rig_evidence", after)``."""

    reader: Callable[..., Callable[..., list[Any]]]
    about: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True)
class ConnectorConfig:
    """``--kv-transfer-config`` and what has to stand around it. ``env`` values are added to the engine's environment;
    PYTHONPATH is put in front of what is there. ``engine_args`` are vLLM flags, one list item a word. ``services`` are
    started in this order; their places are filled in as ``{name.host}``, ``{name.port}``, ``{name.address}``.
    ``build``: what is known of the connector's own code (version, commit, kernels), recorded with what is effective."""

    kv_connector: str
    module_path: str | None = None
    extra: Mapping[str, object] = field(default_factory=dict)
    engine_args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    kv_role: str = "kv_both"
    load_failure_policy: str = "fail"
    services: tuple[ServiceSpec, ...] = ()
    witness: Witness | None = None
    build: Mapping[str, object] = field(default_factory=dict)

    def placed(self, addresses: Mapping[str, str]) -> ConnectorConfig:
        """With every place of a service filled in; ``addresses``: service -> host:port."""
        return replace(
            self,
            extra={key: filled(value, addresses) for key, value in self.extra.items()},
            env={key: filled(value, addresses) for key, value in self.env.items()},
            witness=self.witness
            and replace(self.witness, about={k: filled(v, addresses) for k, v in self.witness.about.items()}),
        )

    def alone(self) -> ConnectorConfig:
        """For an engine that nobody runs the optional servers for: in a container, or started by hand."""
        optional = {service.name: "" for service in self.services if service.optional}
        rest = tuple(service for service in self.services if not service.optional)
        return replace(self.placed(optional), services=rest)

    def as_kv_transfer_config(self) -> dict[str, object]:
        config: dict[str, object] = {
            "kv_connector": self.kv_connector,
            "kv_role": self.kv_role,
            "kv_connector_extra_config": dict(self.extra),
            "kv_load_failure_policy": self.load_failure_policy,
        }
        if self.module_path:
            config["kv_connector_module_path"] = self.module_path
        return config


def filled(value: object, addresses: Mapping[str, str]) -> object:
    """A string with the places of known services filled in; anything else as it is."""

    def place(match: re.Match[str]) -> str:
        address = addresses.get(match["name"])
        if address is None:
            return match[0]
        host, _, port = address.rpartition(":")
        return {"host": host, "port": port, "address": address}[match["what"]]

    return _PLACE.sub(place, value) if isinstance(value, str) else value


@dataclass(frozen=True)
class HitRule:
    """How many tokens of a prompt the connector serves: whole units of ``granularity`` tokens, never the last
    ``hold_back`` ones, nothing under one unit. ``short_by``: it may serve so many tokens fewer. ``may_miss``: at times
    it serves less or nothing, and is right. Source: each adapter's own comments."""

    granularity: int
    hold_back: int = 1
    short_by: int = 0
    may_miss: bool = False

    def least(self, tokens: int, local: int = 0) -> int:
        """Of what ``external`` says, that which it serves in any case."""
        return 0 if self.may_miss else max(self.external(tokens, local) - self.short_by, 0)

    def external(self, tokens: int, local: int = 0) -> int:
        """Tokens served by the connector beyond ``local`` tokens that vLLM's own prefix cache serves."""
        whole = max(tokens - self.hold_back, 0) // self.granularity * self.granularity
        return max(whole - local, 0)


@dataclass(frozen=True, kw_only=True)
class Abilities:
    """Facts of a connector, as its adapter states them. (What axes it has, ``Adapter.axes`` says.)

    What nobody states binds to the strict side. A story is built upon what is stated only: else it is not tried, and
    told so. What every connector owes is asked of each: one that is known not to keep it says so, and the report names
    a blind spot in place of a verdict.
    """

    # what a story may be built upon

    #: it has counters of its own, in the worker or by a witness
    counters: bool = False
    #: it plants faults in its own code; else they are planted around it
    plants_faults: bool = False
    #: what it stores is this run's alone, so that it may be emptied
    owns_store: bool = False
    #: size of the pool that an engine start gets, or None where it has none of its own
    pool_bytes: int | None = None
    #: it only stands in for a connector, which it is the double of: what is measured here holds for the double
    double_of: str = ""
    #: a pool of any size can be had, that evicts or refuses once it is full (``Adapter.with_pool``)
    sized_pool: bool = False
    #: the most tokens of a prompt that it can take, or None
    longest_prompt: int | None = None
    #: two engines at once can use one store
    shared_store: bool = False
    #: what is stored outlives the engine that stored it
    survives_restart: bool = False
    #: it stores the KV of generated tokens, too, so that a next turn is served beyond the last prompt
    next_turn: bool = False
    #: what it moves beside the compute can be slowed down, and it counts what meets that under way
    slowed: bool = False
    #: it takes requests with LoRA adapters and keeps their KV apart
    lora: bool = False
    #: the server of its store that may be killed and stopped, whose tool damages and fills what it holds; the connector
    #: counts what it sees of that: ``index_errors``, ``index_late``, ``load_failures``, ``no_room``
    breakable: str = ""

    # what is owed

    #: its keys hold the salt: two salts share nothing
    salted: bool = True
    #: of what was stored it serves the beginning, too, not only the whole
    prefixes: bool = True
    #: with overlap it tells whether a layer was really waited for
    waits_seen: bool = True
    #: it stores with loss (quantized, say): what it serves differs from what was computed, and the report says by how
    #: much in place of a verdict
    lossy: bool = False


class Adapter(ABC):
    """One connector. A new one is one file in connectors/ and one line in its table."""

    name: str
    #: one line for people
    description: str
    #: axes that mean something for it; the grid collapses all others
    axes: frozenset[str]
    #: axes that need an engine of their own; a subset of ``axes``. The rest is chosen per request.
    engine_axes: frozenset[str]
    #: axis -> words of its values, where a connector has values of its own that no grid names
    values: Mapping[str, tuple[str, ...]] = MappingProxyType({})
    abilities: Abilities = Abilities()

    @abstractmethod
    def config(self, cell: Cell, *, pool_dir: str, block_size: int) -> ConnectorConfig:
        """The engine part of a cell; equal for cells that share an engine key. ``pool_dir``: an empty folder of
        this engine start, for whatever the connector stores."""

    @abstractmethod
    def hit_rule(self, cell: Cell, *, block_size: int) -> HitRule: ...

    @abstractmethod
    def step(self, cell: Cell, *, block_size: int) -> int | None:
        """The prefill step S (--max-num-batched-tokens) that aligns cold run and rerun, or None when this connector
        can't be aligned (it stores the first step only, say) and the split-matched oracle must judge."""

    def check(self, cell: Cell) -> str | None:
        """Why this cell can't run with this connector, as one sentence, or None."""
        return None

    def request_params(self, cell: Cell) -> dict[str, object] | None:
        """``kv_transfer_params`` of a request, or None."""
        return None

    def timed_params(self, cell: Cell) -> dict[str, object] | None:
        """``request_params`` where speed is measured: without what a proof needs to be sure to see its subject."""
        return self.request_params(cell)

    def with_pool(self, size: int, *, evicts: bool) -> Adapter:
        """The same over a pool of so many bytes. Only of one that states ``sized_pool``."""
        raise NotImplementedError(f"{self.name} has no pool that could be given a size")

    def missing(self, *, device: str) -> str | None:
        """Why this connector can't run on this machine at all, with the cure, as one sentence. ``device``: cpu or
        cuda."""
        return None

    def unfit(self, *, device: str, attention: str | None) -> str | None:
        """Why it can't read what this attention backend keeps, with the cure, as one sentence. ``attention``: as in
        --attention, None where vLLM chooses."""
        return None

    def checkup(self, *, device: str) -> Iterable[Line]:
        """What the doctor is to say of it on this machine. ``device``: cpu or cuda."""
        return ()

    def slowed(self, config: ConnectorConfig, seconds: float) -> ConnectorConfig:
        """The same where each store and each load beside the compute takes so many seconds more, by the unit that it
        moves; see ``Abilities.slowed``."""
        raise NotImplementedError

    def server_answers(self) -> Line | None:
        """What the server that somebody else runs for it answers, for the doctor; None where it has none, or can ask
        no better than whether something listens."""
        return None

    def crowded(self, *, starts: int) -> str | None:
        """Why a store that somebody else runs has no room for so many engine starts, with the cure, as one sentence."""
        return None

    def refuses(self, cell: Cell, tokens: int) -> str | None:
        """Why a prompt of so many tokens must not be sent to it, as one sentence."""
        return None

    def blind(self, cell: Cell) -> list[dict[str, str]]:
        """What nobody can see about it in this cell: ``[{"fault_class", "why"}]``."""
        spots = []
        if not self.abilities.waits_seen and cell.get("overlap") == "on":
            why = f"{self.name} tells of no waits for layers: it took that path, and nobody knows what overlapped"
            spots.append({"fault_class": OVERLAP_UNSEEN, "why": why})
        if not self.abilities.salted:
            why = f"keys of {self.name} know no salt: whoever sends the same tokens under another one is served them"
            spots.append({"fault_class": "not isolated", "why": why})
        return spots
