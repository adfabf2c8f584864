"""First tokens against what the machine could do: without a connector, stored, from a local cache and from the pool.

python -m e2e.tests.benchmarks.ttft [--rounds N,N] [--lengths N,N] [--layouts NHD,HND] [--model DIR] [--attention NAME]

All engines are started first, two a layout, and one of them is asked at a time. In a round each is asked a new prompt,
or several at once: the one without a connector twice, which is the noise, and the other in each storage format cold,
again from its local cache, and from the pool in each way of loading, one of them once more. Who is asked first rotates.
Printed are medians, and medians of the ratios of a round with their 95 % interval. Exit code 1 where an answer was
served by anything else than it should be or, to a prompt alone, is not the one without a connector, token for token; a
ratio fails nothing.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from itertools import cycle, product
from pathlib import Path

import torch

from e2e.base.speed import Figure, figure
from e2e.replay.client import EngineClient
from e2e.replay.stream import Completion
from e2e.stack.model_facts import model_facts
from e2e.tests.engine.engines import Engines, ask, embedded_on, engines_of
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
#: Of a cache and a pool, for the blocks and chunks of which a prompt fills a part.
SPARE = 1.25
#: What an external hit may take of the bytes' time in one large copy, beyond a local one.
LIMIT = 1.15


@dataclass(frozen=True)
class Asked:
    """At once. ``least``, ``most``: of each from a cache, as it should be."""

    answers: Sequence[Completion]
    least: int
    most: int

    @property
    def seconds(self) -> float:
        """Until a first token, in the mean."""
        return statistics.fmean(answer.first_ns - answer.sent_ns for answer in self.answers) / 1e9

    @property
    def served_otherwise(self) -> int:
        return sum(not self.least <= (answer.cached_tokens or 0) <= self.most for answer in self.answers)

    def other(self, of: Asked) -> int:
        return sum(one.token_ids != other.token_ids for one, other in zip(self.answers, of.answers, strict=True))


@dataclass(frozen=True)
class Pair:
    """Engines of one layout. ``rate``: bytes a second of one large copy in the connector's."""

    layout: str
    baseline: EngineClient
    connector: EngineClient
    rate: float

    def round(self, prompts: Sequence[Sequence[int]], number: int, *, baseline: bool) -> dict[str, Asked]:
        """By name: a format and how it was asked, or one of ``BASELINES``."""
        groups = [*(BASELINES if baseline else ()), *FORMATS]
        turn = number % len(groups)
        found: dict[str, Asked] = {}
        for name in [*groups[turn:], *groups[:turn]]:
            salt = f"{number} {len(prompts)} {name}"
            if name in FORMATS:
                found |= self._loads(prompts, salt, name, number)
            else:
                found[name] = Asked(_ask(self.baseline, prompts, salt, None), 0, 0)
        return found

    def _loads(self, prompts: Sequence[Sequence[int]], salt: str, form: str, number: int) -> dict[str, Asked]:
        length, names = len(prompts[0]), [*LOADS]
        whole, params = (length - 1) // CHUNK * CHUNK, {"storage_format": form, "cell": form}
        found = {f"{form} cold": Asked(_ask(self.connector, prompts, salt, params), 0, 0)}
        self.connector.collective_rpc("rig_evidence", 0)  # waits until all of it is stored
        found[f"{form} local"] = Asked(_ask(self.connector, prompts, salt, params), whole, length)
        for name in [*names[number % len(names) :], *names[: number % len(names)]]:
            self.connector.reset_prefix_cache()
            answers = _ask(self.connector, prompts, salt, {**params, **LOADS[name]})
            found[f"{form} {name}"] = Asked(answers, whole, whole)
        return found


def _ask(client: EngineClient, prompts: Sequence[Sequence[int]], salt: str, params: Mapping | None) -> list[Completion]:
    time.sleep(PAUSE_S)
    with ThreadPoolExecutor(len(prompts)) as threads:
        one = partial(ask, client, salt=salt, params=params, max_tokens=OUTPUT)
        return [*threads.map(one, map(list, prompts))]


def played(
    pairs: Sequence[Pair], rounds: int, tokens: int, at_once: int, *, baseline: bool
) -> Iterator[dict[str, dict[str, Asked]]]:  # fmt: skip
    """Each round's answers, by layout."""
    for number in range(rounds):
        chance = random.Random(f"{tokens} {at_once} {number}")
        prompts = [[chance.randrange(1000, 40_000) for _ in range(tokens)] for _ in range(at_once)]
        yield {pair.layout: pair.round(prompts, number, baseline=baseline) for pair in pairs}


def figures(rounds: Sequence[Mapping[str, Asked]], copied_s: float) -> dict[str, object]:
    """Of one layout, length and number at once. ``copied_s``: what the bytes of all take in one large copy."""

    def ratio(one: str, other: str) -> Figure | None:
        known = [each for each in rounds if one in each and other in each]
        return figure(each[one].seconds / each[other].seconds for each in known)

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
    like = BASELINES[0] if BASELINES[0] in rounds[0] else f"{FORMATS[0]} cold"
    return {
        "rounds": len(rounds), "at_once": len(rounds[0][like].answers), "copied_s": copied_s,
        "ttft_s": {name: asdict(figure(each[name].seconds for each in rounds)) for name in rounds[0]},
        "ratios": {name: asdict(each) for name, each in found.items() if each},
        "other_answers": sum(asked.other(each[like]) for each in rounds for asked in each.values()),
        "served_otherwise": sum(asked.served_otherwise for each in rounds for asked in each.values()),
    }  # fmt: skip


def printed(layout: str, tokens: int, told: Mapping[str, object]) -> None:
    print(
        f"\n{tokens} tokens, {told['at_once']} at once, {layout}, {told['rounds']} rounds; their bytes in one copy "
        f"{told['copied_s']:.4f} s; {told['other_answers']} other answers, {told['served_otherwise']} served otherwise"
    )
    print("  " + ", ".join(f"{name} {each['median']:.3f}" for name, each in told["ttft_s"].items()))
    for name, each in told["ratios"].items():
        about = f" ({each['low']:.3f} to {each['high']:.3f})" if each["low"] is not None else ""
        print(f"  {name:45} {each['median']:.3f}{about}", flush=True)


@contextmanager
def started(
    engines: Engines, out: Path, layouts: Sequence[str], size: int, small: int, **about: object
) -> Iterator[list[Pair]]:  # fmt: skip
    """``size``: bytes of a connector's pool, in memory that a GPU can pin, and of its engine's cache; ``small``: of the
    cache of one without. ``about``: settings of EngineSpec."""
    with ExitStack() as stack:
        stores = [stack.enter_context(engines.store(layout, out, pools=Path("/dev/shm"))) for layout in layouts]
        begun = []
        with ThreadPoolExecutor(int(about["beside"])) as starting:
            for layout, store in zip(layouts, stores, strict=True):
                for config, cache in ((None, small), (embedded_on(store, size, embedded_evict=True), size)):
                    one = engines(connector=config, layout=layout, kv_cache_memory_bytes=cache, **about)
                    begun.append(starting.submit(stack.enter_context, one))
        clients = [each.result() for each in begun]
        copies = [client.collective_rpc("rig_copy")[0] for client in clients[1::2]]
        rates = [copy["bytes"] / copy["seconds"] for copy in copies]
        yield [Pair(*each) for each in zip(layouts, clients[::2], clients[1::2], rates, strict=True)]


def main(given: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument(
        "--lengths", default="4105,16393", help="tokens, of which those too long for the model are left out"
    )
    parser.add_argument("--rounds", default="10", help="of each length, and so on for each number at once")
    parser.add_argument("--at-once", default="1", help="prompts; several numbers are measured one after the other")
    parser.add_argument("--layouts", default="NHD,HND")
    parser.add_argument("--step", type=int, default=512, help="tokens that a forward computes at most")
    parser.add_argument("--model", help="folder [the tests' own]")
    parser.add_argument("--attention", default="FLASH_ATTN" if torch.cuda.is_available() else "strided")
    parser.add_argument("--kv-gib", type=float, help="cache of an engine, and of a pool [what the most tokens need]")
    parser.add_argument(
        "--baseline-kv-gib", type=float, help="cache of one without a connector, not asked for more [as the others']"
    )
    parser.add_argument("--out", type=Path, default=None)
    flags = parser.parse_args(given)
    on_gpu, layouts = torch.cuda.is_available(), flags.layouts.split(",")
    asked, rounds, at_once = ([*map(int, each.split(","))] for each in (flags.lengths, flags.rounds, flags.at_once))
    model = flags.model or tiny_model()
    facts = model_facts(model)
    if facts is None:
        parser.error(f"the config.json of {model} does not tell its layers and heads; name a model's folder.")
    lengths = [tokens for tokens in asked if tokens + 1 + OUTPUT <= (facts.max_tokens or tokens + 1 + OUTPUT)]
    if not lengths:
        parser.error(f"{model} takes {facts.max_tokens} tokens, prompt and answer; give shorter --lengths.")
    if left := [str(tokens) for tokens in asked if tokens not in lengths]:
        print(f"Left out, too long for the model: {', '.join(left)} tokens.")
    out = flags.out or Path(tempfile.mkdtemp(prefix="ttft-"))
    out.mkdir(parents=True, exist_ok=True)
    of_token = facts.kv_bytes_per_token(2)
    needed = SPARE * max(lengths) * max(at_once) * of_token
    size = int(flags.kv_gib * 2**30 if flags.kv_gib else needed)
    small = int(flags.baseline_kv_gib * 2**30) if flags.baseline_kv_gib else size
    beside = 2 * len(layouts) if on_gpu else 1
    about = {
        "device": "cuda" if on_gpu else "cpu", "dtype": "bfloat16", "attention": flags.attention, "start": "stock",
        "model": model, "max_num_batched_tokens": flags.step,
        "max_model_len": max(lengths) + OUTPUT + 1, "beside": beside,
    }  # fmt: skip
    found: dict[str, object] = {"model": Path(model).name, "step": flags.step}
    failed = 0
    with engines_of(out) as engines, started(engines, out, layouts, size, small, **about) as pairs:
        for tokens in lengths:  # the first of a shape may compile something
            [*played(pairs, 1, tokens + 1, 1, baseline=of_token * tokens < small)]
        for (number, tokens), times in zip(product(at_once, lengths), cycle(rounds)):
            bytes_of_all = of_token * tokens * number
            seen = [*played(pairs, times, tokens, number, baseline=bytes_of_all < small)]
            for pair in pairs:
                told = figures([each[pair.layout] for each in seen], bytes_of_all / pair.rate)
                found[f"{tokens} x {number} {pair.layout}"] = told
                # beside others an engine computes in other batches, and may round otherwise
                failed += told["served_otherwise"] + (told["other_answers"] if number == 1 else 0)
                printed(pair.layout, tokens, told)
            (out / "ttft.json").write_text(json.dumps(found, indent=1))
    print(f"\nall figures: {out / 'ttft.json'}")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
