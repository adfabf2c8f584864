"""The connector's half in the scheduler: what to load, what to store, whose blocks must stay.

Pure bookkeeping over the pool's index; it never touches KV. Rules that vLLM sets (0.29 to 0.32 read in source):
``update_state_after_alloc`` may come twice for one async load, so only its token count decides; a request that is
aborted while it waits for a load is freed by vLLM when the worker reports the end of it.
"""

from __future__ import annotations

import itertools
import uuid
from dataclasses import dataclass, field
from functools import partial

from e2e.base.fault import parted
from e2e.inside import faults, keys
from e2e.inside.config import EmbeddedConfig, RequestSettings
from e2e.inside.pool import Pool


@dataclass
class Load:
    """Tokens [first, end) of a request, to be placed in ``blocks`` (the request's whole block table).

    ``keys``: keys of the chunks that cover [0, end); the worker skips those before ``first``.
    """

    request: str
    settings: RequestSettings
    keys: list[str]
    first: int
    end: int
    blocks: list[int]


@dataclass
class Store:
    """One chunk that this step completes: its key and the blocks that hold its tokens, in order. ``tag``: of this
    chunk in this step, the same for all ranks. ``begun``: tokens of it that were there before this step. ``generated``:
    tokens at its end that are of the answer."""

    request: str
    settings: RequestSettings
    key: str
    chunk: int
    blocks: list[int]
    tag: str = ""
    begun: int = 0
    generated: int = 0


@dataclass
class Answering:
    """While a fault is planted: a request that something was loaded for computes its ``token``-th output token, from 2,
    in this step. ``prompt``: its tokens; ``blocks``: its whole block table."""

    request: str
    settings: RequestSettings
    blocks: list[int]
    prompt: int
    token: int


@dataclass
class Tracked:
    """``request``: vLLM's own, whose tokens grow. ``lacking``: of the chunks before ``asked``, as far as they are
    still to be looked at, those that the pool had not when it was asked."""

    request: object
    settings: RequestSettings
    chain: keys.Chain
    nameless: bool = False
    blocks: list[int] = field(default_factory=list)
    stored: int = 0
    asked: int = 0
    lacking: set[int] = field(default_factory=set)
    matched: tuple[int, int] = (0, 0)
    overlapped: bool = False
    pinned: bool = False

    @property
    def keys(self) -> list[str]:
        """Of all chunks whose tokens are known by now; none where they are not all that its KV hangs on."""
        return [] if self.nameless else self.chain.follow(self.request.all_token_ids)

    def back_to(self, chunk: int) -> None:
        """What stands from there on is computed anew, if there is any."""
        self.stored = min(self.stored, chunk)
        self.asked = min(self.asked, self.stored)


class SchedulerSide:
    def __init__(
        self, config: EmbeddedConfig, pool: Pool, *, space: dict[str, object], block_size: int, ranks: int
    ) -> None:
        """``space``: the namespace that all requests of this engine share; ``ranks``: tensor- and pipeline-parallel
        ranks, each of which stores its own objects."""
        self._config, self._pool, self._space, self._block_size, self._ranks = config, pool, space, block_size, ranks
        self._requests: dict[str, Tracked] = {}
        self._loads: list[Load] = []
        #: of the step that was planned last; ``overlapped``: its requests whose loads go on beside forwards
        self.answering: list[Answering] = []
        self.overlapped: set[str] = set()
        self._lingering: set[str] = set()
        self._kept: dict[str, RequestSettings] = {}
        self._loading: list[str] = []
        self._under_way: set[str] = set()
        self._tags = (f"{uuid.uuid4().hex[:8]}-{number}" for number in itertools.count())

    def matched(self, request, local: int) -> tuple[int, bool]:
        """(external tokens beyond ``local``, async?) for a waiting request. The last token is never served."""
        tracked = self._track(request)
        if tracked is None:
            return 0, False
        usable = tracked.keys[: (request.num_prompt_tokens - 1) // self._config.chunk_tokens]
        there = self._there(usable, pin=request.request_id)
        found = there.index(False) if False in there else len(there)
        tracked.pinned = any(there)
        if self._config.async_store and self._config.slow_s and self._pool.evidence.under_way()["store"]:
            self._count({"lookups_beside_stores": 1}, tracked.settings)
        external = max(found * self._config.chunk_tokens - local, 0)
        tracked.matched = (local, external)
        self._count({"lookups": 1, "hit_chunks": found, "miss_chunks": len(usable) - found}, tracked.settings)
        return external, external > 0 and tracked.settings.load == "async"

    def allocated(self, request, block_ids: list[int], external: int) -> None:
        tracked = self._requests.get(request.request_id)
        if tracked is None or external <= 0:
            return
        local = tracked.matched[0]
        chunks = -(-(local + external) // self._config.chunk_tokens)
        self._loads.append(
            Load(request.request_id, tracked.settings, tracked.keys[:chunks], local, local + external, list(block_ids))
        )
        tracked.overlapped = tracked.settings.overlap
        if tracked.settings.load == "async":
            self._under_way.add(request.request_id)
        self._count({"hit_tokens": external}, tracked.settings)

    def step(self, output) -> tuple[list[Load], list[Store]]:
        """What the worker has to do in this step: loads that were allocated, chunks that it completes."""
        for request in self._loading:  # in the step before this one
            self._unpin(request)
        self._loading = [load.request for load in self._loads if load.settings.load == "sync"]
        loads, self._loads = self._loads, []
        self.answering = []
        self.overlapped = {name for name in output.num_scheduled_tokens if self._overlaps(name)}
        stores: list[Store] = []
        for new in output.scheduled_new_reqs:
            if (tracked := self._requests.get(new.req_id)) is not None:
                tracked.blocks = list(new.block_ids[0])
                # newer runners take a resumed request for new
                tracked.back_to(new.num_computed_tokens // self._config.chunk_tokens)
                stores += self._advance(new.req_id, tracked, new.num_computed_tokens, output)
        cached = output.scheduled_cached_reqs
        for i, request_id in enumerate(cached.req_ids):
            if (tracked := self._requests.get(request_id)) is None:
                continue
            fresh = cached.new_block_ids[i]
            if request_id in cached.resumed_req_ids:
                tracked.back_to(cached.num_computed_tokens[i] // self._config.chunk_tokens)
                tracked.blocks = list(fresh[0]) if fresh else []
            elif fresh:
                tracked.blocks += fresh[0]
            stores += self._advance(request_id, tracked, cached.num_computed_tokens[i], output)
        return loads, stores

    def _overlaps(self, request_id: str) -> bool:
        tracked = self._requests.get(request_id)
        return tracked is not None and tracked.overlapped

    def received(self, finished: set[str] | None) -> set[str]:
        """Which of the requests reported as loaded must not be freed yet: they were aborted in between, and their
        loader may still write. The worker reports them again, as sent, when it is done."""
        for request in finished or ():
            self._unpin(request)
            self._under_way.discard(request)
        return {request for request in finished or () if request in self._lingering}

    def sent(self, finished: set[str] | None) -> None:
        self._lingering -= finished or set()

    def finished(self, request_id: str, *, aborted: bool = False) -> bool:
        """True: keep this request's blocks until the worker says that its overlapped load has ended."""
        self._unpin(request_id)
        tracked = self._requests.pop(request_id, None)
        if tracked and aborted:
            self._count({"aborts": 1, "aborted_loads": int(request_id in self._under_way)}, tracked.settings)
        self._under_way.discard(request_id)
        if tracked and faults.get(parted(tracked.settings.fault)[0]).keeps_blocks:
            self._count({f"fired:{tracked.settings.fault}": 1}, tracked.settings)
            self._kept[request_id] = tracked.settings
            return True
        keep = tracked is not None and tracked.overlapped
        if keep:
            self._lingering.add(request_id)
        return keep

    def let_go(self) -> set[str]:
        """Requests whose blocks a planted fault has kept until another cell's came."""
        asked = {tracked.settings for tracked in self._requests.values()}
        freed = {name for name, settings in self._kept.items() if asked - {settings}}
        for name in freed:
            del self._kept[name]
        return freed

    def _count(self, values: dict[str, int], settings: RequestSettings) -> None:
        self._pool.evidence.count(values, storage_format=settings.storage_format, placement=settings.placement)

    def _unpin(self, request_id: str) -> None:
        """What a request was to load has been read, or never will be: it may be evicted."""
        tracked = self._requests.get(request_id)
        if tracked and tracked.pinned:
            tracked.pinned = False
            self._pool.unpin(request_id)

    def _track(self, request) -> Tracked | None:
        tracked = self._requests.get(request.request_id)
        if tracked is None:
            try:
                settings = self._config.defaults.override(request.kv_transfer_params)
            except (TypeError, ValueError):
                # Raising here would kill the engine for one bad request; it is served without the cache, and counted.
                self._pool.evidence.count({"refused_requests": 1})
                return None
            parts = {
                **self._space, "chunk": self._config.chunk_tokens, "block": self._block_size,
                "salt": request.cache_salt, "lora": keys.lora(getattr(request, "lora_request", None)),
                "settings": settings.in_key,
            }  # fmt: skip
            fired = partial(self._count, {f"fired:{settings.fault}": 1}, settings)
            space = keys.namespace(faults.get(parted(settings.fault)[0]).named_by(parts, fired))
            chain = keys.Chain(self._config.chunk_tokens, space, partial(self._named, settings))
            tracked = self._requests[request.request_id] = Tracked(
                request, settings, chain, nameless=keys.more_than_tokens(request)
            )
        return tracked

    def _named(self, settings: RequestSettings, key: str, own: bytes) -> str:
        named = faults.get(parted(settings.fault)[0]).named(key, own)
        if named != key:
            self._count({f"fired:{settings.fault}": 1}, settings)
        return named

    def _advance(self, request_id: str, tracked: Tracked, computed: int, output) -> list[Store]:
        """Chunks whose last token this step computes, or that a hit brought in and the pool lacks. Whatever the
        boundaries of the steps, a chunk is stored from the cache once all of it is there; of the answer, too, as far as
        its tokens are known when the step is planned."""
        chunk, blocks_per_chunk = self._config.chunk_tokens, self._config.chunk_tokens // self._block_size
        prompt = tracked.request.num_prompt_tokens
        if tracked.settings.fault and tracked.matched[1] and computed >= prompt:
            token, blocks = computed - prompt + 2, list(tracked.blocks)
            self.answering.append(Answering(request_id, tracked.settings, blocks, prompt, token))
        whole = min((computed + output.num_scheduled_tokens[request_id]) // chunk, len(tracked.keys))
        if computed // chunk < tracked.stored:
            # A failed load that is recomputed steps back: what it stored since may be made of what was not there.
            void = tracked.keys[computed // chunk : tracked.stored]
            self._pool.forget(self._groups(void))
            tracked.back_to(computed // chunk)
        todo = self._lacking(tracked, range(tracked.stored, whole))
        tracked.stored = whole
        return [
            Store(
                request_id, tracked.settings, tracked.keys[index], index,
                self._blocks(tracked, index, blocks_per_chunk), next(self._tags),
                max(computed - index * chunk, 0), min(max((index + 1) * chunk - prompt, 0), chunk),
            )
            for index in todo
        ]  # fmt: skip

    def _lacking(self, tracked: Tracked, chunks: range) -> list[int]:
        """Those that the pool lacks. It is asked for all whose tokens are known by now, since the step waits for it."""
        if chunks.stop > tracked.asked:
            asked = range(chunks.start, len(tracked.keys))
            there = self._there([tracked.keys[index] for index in asked])
            tracked.asked, tracked.lacking = asked.stop, {i for i, one in zip(asked, there, strict=True) if not one}
        return [index for index in chunks if index in tracked.lacking]

    def _blocks(self, tracked: Tracked, chunk: int, number: int) -> list[int]:
        """Those of a chunk, ``number`` a chunk."""
        loaded = tracked.matched[1] // self._config.chunk_tokens
        first = faults.get(parted(tracked.settings.fault)[0]).stored_from(chunk, loaded)
        if first != chunk:
            self._count({f"fired:{tracked.settings.fault}": 1}, tracked.settings)
        return tracked.blocks[first * number : (first + 1) * number]

    def _there(self, chunk_keys: list[str], *, pin: str | None = None) -> list[bool]:
        """Of each chunk: has every rank stored it, in one and the same step?"""
        found = self._pool.find(self._groups(chunk_keys), pin=pin)
        shares = [found[at : at + self._ranks] for at in range(0, len(found), self._ranks)]
        return [None not in tags and len({*tags}) == 1 for tags in shares]

    def _groups(self, chunk_keys: list[str]) -> list[str]:
        return [f"{key}@{rank}" for key in chunk_keys for rank in range(self._ranks)]
