"""One KV connector with switches. Without any it is right: whole blocks, stored at once, of prompts and answers.

``extra``: dir, a folder; on, a list of switches. A request may bring switches of its own (``kv_transfer_params``: on),
so that one engine can show many. For vLLM 0.26 and newer, one worker, one group of layers.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from itertools import takewhile

import torch
from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorBase_V1, KVConnectorMetadata

from e2e.tests.cases.pages import Pages

#: Kinds of bugs that users met in public.
BROKEN = {
    "unchained": "a block's key is a hash of its own tokens only, not of what stands before it",
    "no_identity": "a key knows neither salt nor LoRA",
    "third_load": "right on the first two loads of a block, wrong from the third on",
    "mixed_offset": "when vLLM's own cache already holds a part, pages are taken from the prompt's start",
    "mixed_loads": "two loads of one step exchange their blocks",
    "stray_write": "a load also writes into a block of the request that was loaded before",
    "answer_short": "KV of generated tokens is stored one slot late, so that each block lacks its last token",
    "answer_spoilt": "a block of a loaded request is spoilt at the 12th token of its answer",
    "tail_reversed": "serves a partial last block, and the K of its tokens lies in the wrong order",
    "unheld": "reads the blocks that it stores some steps later, and does not hold them",
    "slot_reused": "when the store is full a slot is used again, and its old key still leads to it",
    "never_freed": "keeps the blocks of finished requests for ever",
}
#: Legitimate habits.
UNUSUAL = {
    "async_load": "loads between steps (load_kv_async)",
    "round_down": "serves whole units of 64 tokens only",
    "tail": "serves a partial last block, too",
    "misses": "finds nothing at every third look",
    "small": "the store is small and forgets the oldest block",
    "fail_once": "the first load of a prompt fails, and vLLM is told",
    "lossy": "stores int8 with a scale per block, layer, head, and K or V",
}
_ROUND = 64
#: Output token at which ``answer_spoilt`` strikes.
_SPOILT_AT = 12
#: Steps after which ``unheld`` reads what it stores.
_LATER = 24


@dataclass
class Job:
    """Pages by key and the blocks that they belong to. ``rows``: slots of the last block in use, 0: all. ``answer``:
    does a block hold generated tokens."""

    request: str
    on: frozenset[str]
    keys: list[str]
    ids: list[int]
    rows: int = 0
    answer: list[bool] = field(default_factory=list)


@dataclass
class Meta(KVConnectorMetadata):
    """``spoilt``: blocks that a broken connector spoils in this step."""

    loads: list[Job] = field(default_factory=list)
    stores: list[Job] = field(default_factory=list)
    spoilt: list[int] = field(default_factory=list)


@dataclass
class Track:
    """A request. ``stored``: its blocks that were stored; ``found``: keys, and ``at``: tokens that vLLM had itself,
    when it was looked up."""

    request: object
    on: frozenset[str]
    misses: bool
    ids: list[int] = field(default_factory=list)
    stored: int = 0
    found: list[str] = field(default_factory=list)
    at: int = 0
    loaded: bool = False


def _number(name: str) -> int:
    parts = name.split(".")
    return int(parts[parts.index("layers") + 1])


class Switched(KVConnectorBase_V1):
    def __init__(self, vllm_config, role, kv_cache_config=None) -> None:
        super().__init__(vllm_config, role, kv_cache_config)
        extra = self._kv_transfer_config.kv_connector_extra_config
        self._on, self._dir = _known(extra.get("on", [])), extra["dir"]
        self._size = vllm_config.cache_config.block_size
        # scheduler
        self._tracks: dict[str, Track] = {}
        self._loads: list[Job] = []
        self._asked = 0
        # worker
        self._layers: list[torch.Tensor] = []
        self._received: set[str] = set()
        self._failed: set[int] = set()
        self._failed_once: set[str] = set()
        self._loaded: dict[str, int] = {}
        self._before: list[int] = []
        self._late: list[tuple[int, Job]] = []
        self._step = 0

    # scheduler

    def on_new_request(self, request) -> None:
        asked = (request.kv_transfer_params or {}).get("on")
        self._asked += 1
        on = self._on if asked is None else _known(asked)
        self._tracks[request.request_id] = Track(request, on, "misses" in on and self._asked % 3 == 0)

    def get_num_new_matched_tokens(self, request, num_computed_tokens):
        track = self._tracks[request.request_id]
        track.found, tokens = ([], 0) if track.misses else self._found(track)
        unit = 1 if track.on & {"tail", "tail_reversed"} else _ROUND if "round_down" in track.on else self._size
        track.at = num_computed_tokens
        new = max(0, min(tokens, request.num_tokens - 1) // unit * unit - num_computed_tokens)
        return new, "async_load" in track.on and new > 0

    def update_state_after_alloc(self, request, blocks, num_external_tokens) -> None:
        if not num_external_tokens:
            return
        track = self._tracks[request.request_id]
        end = track.at + num_external_tokens
        first, last = track.at // self._size, -(-end // self._size)
        keys = track.found[: last - first] if "mixed_offset" in track.on else track.found[first:last]
        ids = blocks.get_block_ids()[0][first:last]
        self._loads.append(Job(request.request_id, track.on, keys, ids, rows=end % self._size))
        track.stored, track.loaded = max(track.stored, end // self._size), True

    def build_connector_meta(self, scheduler_output) -> Meta:
        meta, self._loads = Meta(loads=self._loads), []
        cached = scheduler_output.scheduled_cached_reqs
        for new in scheduler_output.scheduled_new_reqs:
            if track := self._tracks.get(new.req_id):
                track.ids = list(new.block_ids[0])
                self._scheduled(meta, track, new.num_computed_tokens, scheduler_output)
        for i, request in enumerate(cached.req_ids):
            if track := self._tracks.get(request):
                fresh = list(cached.new_block_ids[i][0]) if cached.new_block_ids[i] else []
                track.ids = fresh if request in cached.resumed_req_ids else track.ids + fresh
                self._scheduled(meta, track, cached.num_computed_tokens[i], scheduler_output)
        for request in scheduler_output.finished_req_ids:
            self._tracks.pop(request, None)
        return meta

    def request_finished(self, request, block_ids):
        track = self._tracks.get(request.request_id)
        return track is not None and "never_freed" in track.on, None

    def reset_cache(self) -> bool:
        self._store(self._on).clear()
        return True

    def _scheduled(self, meta: Meta, track: Track, computed: int, scheduler_output) -> None:
        """Of the prompt all that this step computes is stored after it; of the answer, whose tokens may not be known
        yet, what the steps before it computed."""
        prompt = track.request.num_prompt_tokens
        if track.loaded and "answer_spoilt" in track.on and computed == prompt + _SPOILT_AT - 2:
            meta.spoilt.append(track.ids[0])
        end = computed + scheduler_output.num_scheduled_tokens[track.request.request_id]
        end = min(end, prompt) if computed < prompt else min(computed, len(track.request.all_token_ids))
        partial = bool(track.on & {"tail", "tail_reversed"}) and end == prompt and end % self._size > 0
        keys, last = self._keys(track, end), end // self._size
        new = [i for i in range(track.stored, last + partial) if not self._store(track.on).has(keys[i])]
        track.stored = max(track.stored, last)
        if new:
            answer = [(i + 1) * self._size > prompt and i < last for i in new]
            ids = [track.ids[i] for i in new]
            meta.stores.append(Job(track.request.request_id, track.on, [keys[i] for i in new], ids, answer=answer))

    def _found(self, track: Track) -> tuple[list[str], int]:
        """Keys that the store has from the prompt's start on, and how many tokens they are."""
        total, store = track.request.num_tokens, self._store(track.on)
        whole = self._keys(track, total // self._size * self._size)
        found = list(takewhile(store.has, whole))
        tokens = len(found) * self._size
        if track.on & {"tail", "tail_reversed"}:
            for end in range(min(total, tokens + self._size - 1), tokens, -1):
                if store.has(key := self._keys(track, end)[-1]):
                    return [*found, key], end
        return found, tokens

    def _keys(self, track: Track, end: int) -> list[str]:
        """Of the first ``end`` tokens, the last one of what is no whole block."""
        request, size = track.request, self._size
        lora = request.lora_request.lora_name if request.lora_request else ""
        start = b"" if "no_identity" in track.on else repr((request.cache_salt, lora)).encode()
        chain, keys, tokens = hashlib.sha256(start), [], list(request.all_token_ids)[:end]
        for first in range(0, len(tokens), size):
            if "unchained" in track.on:
                chain = hashlib.sha256(start)
            chain.update(repr(tokens[first : first + size]).encode())
            keys.append(chain.hexdigest()[:24])
        return keys

    def _store(self, on: frozenset[str]) -> Pages:
        return Pages.of(self._dir, on)

    # worker

    def register_kv_caches(self, kv_caches) -> None:
        self._layers = [kv_caches[name] for name in sorted(kv_caches, key=_number)]

    def start_load_kv(self, forward_context, **kwargs) -> None:
        meta = self._get_connector_metadata()
        mixed = [job for job in meta.loads if "mixed_loads" in job.on]
        for one, other in zip(mixed[::2], mixed[1::2], strict=False):
            one.ids, other.ids = other.ids, one.ids
        for job in meta.loads:
            self._load(job)
        for block in meta.spoilt:
            for layer in self._layers:
                layer[block] = layer[block].flip(0)

    def _load(self, job: Job) -> None:
        store = self._store(job.on)
        if "async_load" in job.on:
            self._received.add(job.request)
        if "fail_once" in job.on and job.keys[0] not in self._failed_once:
            self._failed_once.add(job.keys[0])
            self._failed |= {*job.ids}
            return
        for number, (key, block) in enumerate(zip(job.keys, job.ids, strict=False)):
            pages = store.get(key)
            if pages is None:
                self._failed |= {*job.ids[number:]}
                return
            self._loaded[key] = self._loaded.get(key, 0) + 1
            if "third_load" in job.on and self._loaded[key] > 2:
                pages[-1] = pages[-1].flip(0)
            if "tail_reversed" in job.on and job.rows and block == job.ids[-1]:
                k = pages[:, :, : job.rows, : pages.shape[3] // 2]
                k.copy_(k.flip(2))
            for layer, page in zip(self._layers, pages, strict=True):
                layer[block] = page
        if "stray_write" in job.on and self._before:
            for layer in self._layers:
                layer[self._before[0]] = layer[job.ids[-1]]
        self._before = job.ids

    def wait_for_layer_load(self, layer_name) -> None:
        return None

    def save_kv_layer(self, layer_name, kv_layer, attn_metadata, **kwargs) -> None:
        return None

    def wait_for_save(self) -> None:
        self._step += 1
        for job in self._get_connector_metadata().stores:
            self._late.append((self._step + _LATER if "unheld" in job.on else self._step, job))
        due = [job for step, job in self._late if step <= self._step]
        self._late = [(step, job) for step, job in self._late if step > self._step]
        for job in due:
            for key, block, answer in zip(job.keys, job.ids, job.answer, strict=True):
                pages = torch.stack([layer[block] for layer in self._layers])
                if answer and "answer_short" in job.on:
                    pages[:, :, 1:] = pages[:, :, :-1].clone()
                self._store(job.on).put(key, pages)

    def get_finished(self, finished_req_ids):
        received, self._received = self._received, set()
        return None, received or None

    def get_block_ids_with_load_errors(self):
        failed, self._failed = self._failed, set()
        return failed


def _known(switches) -> frozenset[str]:
    if unknown := {*switches} - BROKEN.keys() - UNUSUAL.keys():
        raise ValueError(f"unknown switches {sorted(unknown)}")
    return frozenset(switches)
