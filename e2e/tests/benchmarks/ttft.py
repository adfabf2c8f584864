"""First tokens against what the machine could do: without a connector, stored, from a local cache and from the pool.

python -m e2e.tests.benchmarks.ttft [--rounds N,N] [--lengths N,N] [--layouts NHD,HND] [--model DIR] [--attention NAME]

All engines are started first, two a layout, and one of them is asked at a time. In a round each is asked a new prompt:
the one without a connector twice, which is the noise, and the other in each storage format cold, again from its local
cache, and from the pool in each way of loading, one of them once more. Who is asked first rotates. Printed are medians,
and medians of the ratios of a round with their 95 % interval. Exit code 1 where an answer is not that without a
connector, token for token, or was served by anything else than it should; a ratio fails nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from itertools import chain
from pathlib import Path

import torch

from e2e.base.connector import ConnectorConfig
from e2e.base.speed import Figure, figure
from e2e.connectors.table import load
from e2e.grid.cells import expand
from e2e.grid.selection import Selection
from e2e.replay.client import EngineClient
from e2e.replay.stream import Completion
from e2e.stack.store import Store
from e2e.tests.engine.engines import Engines, ask, engines_of
from e2e.tests.engine.tiny import tiny_model

CHUNK, OUTPUT, PAUSE_S = 256, 4, 0.05
FORMATS = ("chunkwise", "layerwise")
BASELINES = ("baseline", "baseline again")
#: Ways of loading, of which the first two are the same.
LOADS: Mapping[str, Mapping[str, object]] = {
    "external": {"load": "sync", "placement": "kernel"},
    "external again": {"load": "sync", "placement": "kernel"},
    "index": {"load": "sync", "placement": "index"},
    "beside": {"load": "async", "placement": "kernel"},
    "overlapped": {"load": "async", "placement": "kernel", "overlap": True, "pace_s": 0},
}
#: What an external hit may take of the bytes' time in one large copy, beyond a local one.
LIMIT = 1.15


@dataclass(frozen=True)
class Asked:
    """``served``: of its tokens from a cache, as the engine tells; ``least``, ``most``: as it should be."""

    answer: Completion
    least: int
    most: int

    @property
    def seconds(self) -> float:
        return (self.answer.first_ns - self.answer.sent_ns) / 1e9

    @property
    def served(self) -> bool:
        return self.least <= (self.answer.cached_tokens or 0) <= self.most


@dataclass(frozen=True)
class Pair:
    """Engines of one layout. ``rate``: bytes a second of one large copy in the connector's."""

    layout: str
    baseline: EngineClient
    connector: EngineClient
    rate: float

    def round(self, prompt: Sequence[int], number: int) -> dict[str, Asked]:
        """By name: a format and how it was asked, or one of ``BASELINES``."""
        groups = [*BASELINES, *FORMATS]
        turn = number % len(groups)
        found: dict[str, Asked] = {}
        for name in [*groups[turn:], *groups[:turn]]:
            salt = f"{number} {name}"
            found |= self._loads(prompt, salt, name, number) if name in FORMATS else {name: self._cold(prompt, salt)}
        return found

    def _cold(self, prompt: Sequence[int], salt: str) -> Asked:
        return Asked(self._ask(self.baseline, prompt, salt, None), 0, 0)

    def _loads(self, prompt: Sequence[int], salt: str, form: str, number: int) -> dict[str, Asked]:
        whole, names = (len(prompt) - 1) // CHUNK * CHUNK, [*LOADS]
        params = {"storage_format": form, "cell": form}
        found = {f"{form} cold": Asked(self._ask(self.connector, prompt, salt, params), 0, 0)}
        self.connector.collective_rpc("rig_evidence", 0)  # waits until all of it is stored
        found[f"{form} local"] = Asked(self._ask(self.connector, prompt, salt, params), whole, len(prompt))
        for name in [*names[number % len(names) :], *names[: number % len(names)]]:
            self.connector.reset_prefix_cache()
            answer = self._ask(self.connector, prompt, salt, {**params, **LOADS[name]})
            found[f"{form} {name}"] = Asked(answer, whole, whole)
        return found

    def _ask(self, client: EngineClient, prompt: Sequence[int], salt: str, params) -> Completion:
        time.sleep(PAUSE_S)
        return ask(client, list(prompt), salt=salt, params=params, max_tokens=OUTPUT)


def played(pairs: Sequence[Pair], rounds: int, tokens: int) -> Iterator[dict[str, dict[str, Asked]]]:
    """Each round's answers, by layout."""
    for number in range(rounds):
        chance = random.Random(f"{tokens} {number}")
        prompt = [chance.randrange(1000, 40_000) for _ in range(tokens)]
        yield {pair.layout: pair.round(prompt, number) for pair in pairs}


def figures(rounds: Sequence[Mapping[str, Asked]], copied_s: float) -> dict[str, object]:
    """Of one layout and length. ``copied_s``: what its bytes take in one large copy."""

    def ratio(one: str, other: str) -> Figure | None:
        return figure(each[one].seconds / each[other].seconds for each in rounds)

    def against_limit(form: str) -> Figure | None:
        limits = (each[f"{form} local"].seconds + LIMIT * copied_s for each in rounds)
        return figure(each[f"{form} external"].seconds / limit for each, limit in zip(rounds, limits, strict=True))

    found: dict[str, Figure | None] = {"baseline again / baseline": ratio(*reversed(BASELINES))}
    for form in FORMATS:
        found |= {
            f"{form} cold / baseline": ratio(f"{form} cold", BASELINES[0]),
            f"baseline / {form} external": ratio(BASELINES[0], f"{form} external"),
            f"{form} external / (local + {LIMIT} copy)": against_limit(form),
            f"{form} external again / external": ratio(f"{form} external again", f"{form} external"),
            f"{form} kernel / index": ratio(f"{form} external", f"{form} index"),
            f"{form} overlapped / beside": ratio(f"{form} overlapped", f"{form} beside"),
        }  # fmt: skip
    return {
        "rounds": len(rounds), "copied_s": copied_s,
        "ttft_s": {name: asdict(figure(each[name].seconds for each in rounds)) for name in rounds[0]},
        "ratios": {name: asdict(each) for name, each in found.items()},
        "other_answers": sum(
            asked.answer.token_ids != each[BASELINES[0]].answer.token_ids for each in rounds for asked in each.values()
        ),
        "served_otherwise": sum(not asked.served for each in rounds for asked in each.values()),
    }  # fmt: skip


def printed(layout: str, tokens: int, told: Mapping[str, object]) -> None:
    print(f"\n{tokens} tokens, {layout}, {told['rounds']} rounds; all bytes in one copy {told['copied_s']:.4f} s; "
          f"{told['other_answers']} other answers, {told['served_otherwise']} served otherwise")  # fmt: skip
    print("  " + ", ".join(f"{name} {each['median']:.3f}" for name, each in told["ttft_s"].items()))
    for name, each in told["ratios"].items():
        about = f" ({each['low']:.3f} to {each['high']:.3f})" if each["low"] is not None else ""
        print(f"  {name:45} {each['median']:.3f}{about}", flush=True)


def connector(engines: Engines, stack: ExitStack, folder: Path, layout: str, size: int) -> ConnectorConfig:
    """On a store of its own of ``size`` bytes, in memory that a GPU can pin."""
    store = stack.enter_context(
        Store(layout, parent=Path("/dev/shm"), ledger=engines.ledger, environ=dict(os.environ),
              log_dir=folder / "logs", record=lambda kind, **data: None)
    )  # fmt: skip
    adapter = replace(load("embedded", pool_bytes=size), evicts=True)
    cell = expand(Selection(), adapter).cells[0]
    return store.give(adapter.config(cell, pool_dir=str(store.folder), block_size=16))


def kv_bytes(client: EngineClient, tokens: int) -> float:
    """That so many tokens have, of what the connector has stored so far."""
    told = client.collective_rpc("rig_evidence", 0)[0]["counters"]
    return told["stored_bytes"] / told["stored_chunks"] * (tokens // CHUNK)


def main(given: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--lengths", default="4105,16393", help="tokens")
    parser.add_argument("--rounds", default="10", help="of each length, or of all")
    parser.add_argument("--layouts", default="NHD,HND")
    parser.add_argument("--step", type=int, default=512, help="tokens that a forward computes at most")
    parser.add_argument("--model", help="folder [the tests' own]")
    parser.add_argument("--attention", default="FLASH_ATTN" if torch.cuda.is_available() else "strided")
    parser.add_argument("--kv-gib", type=float, default=5.0, help="of each engine's cache, and of each pool")
    parser.add_argument("--out", type=Path, default=None)
    flags = parser.parse_args(given)
    out = flags.out or Path(tempfile.mkdtemp(prefix="ttft-"))
    out.mkdir(parents=True, exist_ok=True)
    on_gpu, size = torch.cuda.is_available(), int(flags.kv_gib * 2**30)
    lengths, layouts = [*map(int, flags.lengths.split(","))], flags.layouts.split(",")
    rounds = [*map(int, flags.rounds.split(","))]
    many = 2 * len(layouts) if on_gpu else 1
    about = {
        "device": "cuda" if on_gpu else "cpu", "dtype": "bfloat16", "attention": flags.attention, "start": "stock",
        "kv_cache_memory_bytes": size, "model": flags.model or tiny_model(), "max_num_batched_tokens": flags.step,
        "max_model_len": max(lengths) + OUTPUT + 1, "beside": many,
    }  # fmt: skip
    found: dict[str, object] = {"model": Path(about["model"]).name, "step": flags.step}
    failed = 0
    with ExitStack() as stack:
        engines = stack.enter_context(engines_of(out))
        configs = chain.from_iterable((None, connector(engines, stack, out, layout, size)) for layout in layouts)
        with ThreadPoolExecutor(many) as starting:
            begun = [
                starting.submit(stack.enter_context, engines(connector=config, layout=layouts[at // 2], **about))
                for at, config in enumerate(configs)
            ]  # fmt: skip
            clients = [each.result() for each in begun]
        copies = [client.collective_rpc("rig_copy")[0] for client in clients[1::2]]
        rates = [copy["bytes"] / copy["seconds"] for copy in copies]
        pairs = [Pair(*each) for each in zip(layouts, clients[::2], clients[1::2], rates, strict=True)]
        for at, tokens in enumerate(lengths):
            [*played(pairs, 1, tokens + 1)]  # the first of a shape may compile something
            seen = [*played(pairs, rounds[at % len(rounds)], tokens)]
            size = kv_bytes(clients[1], tokens)
            for pair in pairs:
                told = figures([each[pair.layout] for each in seen], size / pair.rate)
                found[f"{tokens} {pair.layout}"] = told
                failed += told["other_answers"] + told["served_otherwise"]
                printed(pair.layout, tokens, told)
            (out / "ttft.json").write_text(json.dumps(found, indent=1))
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
