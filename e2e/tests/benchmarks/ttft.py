"""First tokens against what the machine could do: without a connector, stored, from a local cache and from the pool.

python -m e2e.tests.benchmarks.ttft [--rounds N,N] [--lengths N,N] [--layouts NHD,HND] [--model DIR] [--attention NAME]

Two engines of a layout stand at a time, and one of them is asked. In a round each is asked a new prompt, or several at
once: the one without a connector twice, which is the noise, and the other without being stored, which is what the two
engines differ by, and in each storage format cold, again from its local cache, and from the pool in each way of
loading, one of them once more. Who is asked first rotates. Printed are medians, and medians of the ratios of a round
with their 95 % interval. Exit code 1 where an answer was served by anything else than it should be or, to a prompt
alone, is not the one without a connector, token for token; a ratio fails nothing.
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
BASELINES, UNSTORED = ("baseline", "baseline again"), "unstored"
#: Ways of loading, of which the first two are the same.
LOADS: Mapping[str, Mapping[str, object]] = {
    "external": {"load": "sync", "placement": "kernel"},
    "external again": {"load": "sync", "placement": "kernel"},
    "index": {"load": "sync", "placement": "index"},
    "beside": {"load": "async", "placement": "kernel"},
    "overlapped": {"load": "async", "placement": "kernel", "overlap": True, "pace_s": 0},
}
#: Settings that the connector refuses: it has nothing to do with such a request.
REFUSED: Mapping[str, object] = {"storage_format": "none"}
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

    baseline: EngineClient
    connector: EngineClient
    rate: float

    def round(self, prompts: Sequence[Sequence[int]], number: int) -> dict[str, Asked]:
        """By name: a format and how it was asked, one of ``BASELINES``, or ``UNSTORED``."""
        groups = [*BASELINES, UNSTORED, *FORMATS]
        turn = number % len(groups)
        found: dict[str, Asked] = {}
        for name in [*groups[turn:], *groups[:turn]]:
            salt = f"{number} {len(prompts)} {name}"
            if name in FORMATS:
                found |= self._loads(prompts, salt, name, number)
            else:
                client, params = (self.connector, REFUSED) if name == UNSTORED else (self.baseline, None)
                found[name] = Asked(_ask(client, prompts, salt, params), 0, 0)
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


def played(pair: Pair, rounds: int, tokens: int, at_once: int) -> list[dict[str, Asked]]:
    """Each round's answers."""
    found = []
    for number in range(rounds):
        chance = random.Random(f"{tokens} {at_once} {number}")
        prompts = [[chance.randrange(1000, 40_000) for _ in range(tokens)] for _ in range(at_once)]
        found.append(pair.round(prompts, number))
    return found


def figures(rounds: Sequence[Mapping[str, Asked]], copied_s: float) -> dict[str, object]:
    """Of one layout, length and number at once. ``copied_s``: what the bytes of all take in one large copy. A round's
    baseline is the mean of both."""

    def seconds(each: Mapping[str, Asked], name: str) -> float:
        return statistics.fmean(each[one].seconds for one in (BASELINES if name == "baseline" else (name,)))

    def ratio(one: str, other: str) -> Figure | None:
        return figure(seconds(each, one) / seconds(each, other) for each in rounds)

    def against_limit(form: str) -> Figure | None:
        limits = (each[f"{form} local"].seconds + LIMIT * copied_s for each in rounds)
        return figure(each[f"{form} external"].seconds / limit for each, limit in zip(rounds, limits, strict=True))

    again = (each[BASELINES[1]].seconds / each[BASELINES[0]].seconds for each in rounds)
    found = {
        "baseline again / the first": figure(again),
        f"{UNSTORED} / baseline": ratio(UNSTORED, "baseline"),
    }
    for form in FORMATS:
        found |= {
            f"{form} cold / {UNSTORED}": ratio(f"{form} cold", UNSTORED),
            f"{form} cold / baseline": ratio(f"{form} cold", "baseline"),
            f"baseline / {form} external": ratio("baseline", f"{form} external"),
            f"{form} external / (local + {LIMIT} copy)": against_limit(form),
            f"{form} external again / external": ratio(f"{form} external again", f"{form} external"),
            f"{form} kernel / index": ratio(f"{form} external", f"{form} index"),
            f"{form} overlapped / beside": ratio(f"{form} overlapped", f"{form} beside"),
        }
    return {
        "rounds": len(rounds), "at_once": len(rounds[0][UNSTORED].answers), "copied_s": copied_s,
        "ttft_s": {name: asdict(figure(each[name].seconds for each in rounds)) for name in rounds[0]},
        "ratios": {name: asdict(each) for name, each in found.items()},
        "other_answers": sum(asked.other(each[BASELINES[0]]) for each in rounds for asked in each.values()),
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
def started(engines: Engines, out: Path, layout: str, size: int, **about: object) -> Iterator[Pair]:
    """``size``: bytes of an engine's cache, and of the pool, in memory that a GPU can pin. ``about``: settings of
    EngineSpec."""
    with ExitStack() as stack:
        store = stack.enter_context(engines.store(layout, out, pools=Path("/dev/shm")))
        with ThreadPoolExecutor(int(about["beside"])) as starting:
            begun = [
                starting.submit(
                    stack.enter_context,
                    engines(connector=config, layout=layout, kv_cache_memory_bytes=size, **about),
                )
                for config in (None, embedded_on(store, size, embedded_evict=True))
            ]
        baseline, connector = (each.result() for each in begun)
        (copy, *_) = connector.collective_rpc("rig_copy")
        yield Pair(baseline, connector, copy["bytes"] / copy["seconds"])


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
    parser.add_argument("--kv-gib", type=float, help="cache of an engine, and the pool [what the most tokens need]")
    parser.add_argument("--out", type=Path, default=None)
    flags = parser.parse_args(given)
    on_gpu = torch.cuda.is_available()
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
    about = {
        "device": "cuda" if on_gpu else "cpu", "dtype": "bfloat16", "attention": flags.attention, "start": "stock",
        "model": model, "max_num_batched_tokens": flags.step,
        "max_model_len": max(lengths) + OUTPUT + 1, "beside": 2 if on_gpu else 1,
    }  # fmt: skip
    found: dict[str, object] = {"model": Path(model).name, "step": flags.step}
    failed = 0
    with engines_of(out) as engines:
        for layout in flags.layouts.split(","):
            with started(engines, out, layout, size, **about) as pair:
                for tokens in lengths:  # the first of a shape may compile something
                    played(pair, 1, tokens + 1, 1)
                for (number, tokens), times in zip(product(at_once, lengths), cycle(rounds)):
                    seen = played(pair, times, tokens, number)
                    told = figures(seen, of_token * tokens * number / pair.rate)
                    found[f"{tokens} x {number} {layout}"] = told
                    # beside others an engine computes in other batches, and may round otherwise
                    failed += told["served_otherwise"] + (told["other_answers"] if number == 1 else 0)
                    printed(layout, tokens, told)
                    (out / "ttft.json").write_text(json.dumps(found, indent=1))
    print(f"\nall figures: {out / 'ttft.json'}")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
