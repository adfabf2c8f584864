"""Does a user wait longer for the first token beside a canary? Two engines on one store, paired.

python -m e2e.tests.benchmarks.canary_ttft [--rounds N] [--minutes M] [--model DIR] [--attention NAME] [-- CANARY FLAGS]

A round asks the same requests three times under salts of their own, so that each time the same share is computed, found
in a local cache or loaded: beside a canary, and twice without one, which is the noise. Each round begins with another.
What is printed: the median ratio of the TTFTs of a request, with its 95 % interval. Exit code 1 where a user had no
answer, or the canary an alert.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import asdict
from itertools import islice
from pathlib import Path

import torch

from e2e.base.speed import Figure, figure
from e2e.replay.client import EngineClient
from e2e.replay.stream import Completion
from e2e.tests.engine.engines import engines_of
from e2e.tests.engine.watched import Canary, Request, Users, ending, on_one_store, requests, spending

#: Kind of window -> answers to the users, None for one that failed.
Answers = dict[str, list[Completion | None]]
#: Forty times the share that is taken by default, so that a short window has probes at all.
WORDS = spending("20%", longest=800)
WINDOWS = ("canary", "alone", "again")
#: Of a user between an answer and the next question. Seconds.
PAUSE_S = 0.05


def asked_once(clients: Sequence[EngineClient], asked: Sequence[Request], salt: str) -> list[Completion | None]:
    return Users(clients, paced=False, pause_s=PAUSE_S, salt=salt).play(asked)


def ratios(of: Sequence[Completion | None], by: Sequence[Completion | None]) -> Figure | None:
    return figure(ttft(one) / ttft(other) if one and other else None for one, other in zip(of, by, strict=True))


def other(of: Sequence[Completion | None], by: Sequence[Completion | None]) -> int:
    """How many were answered otherwise. Beside others an engine computes in other batches, and may round otherwise."""
    return sum(bool(one and other and one.token_ids != other.token_ids) for one, other in zip(of, by, strict=True))


def ttft(answer: Completion) -> float:
    return (answer.first_ns - answer.sent_ns) / 1e9


def played(
    both: Sequence[EngineClient], rounds: int, seconds: float, words: Sequence[str], out: Path
) -> Iterator[tuple[Answers, dict[str, float]]]:  # fmt: skip
    """After each round: the answers so far of each kind of window, in one order for all, and what the canary did."""
    seen: Answers = {name: [] for name in WINDOWS}
    told = {"probes": 0.0, "tokens": 0.0, "corrupt": 0.0}
    asked_once(both, requests(seconds, 0), "warm")
    for number in range(rounds):
        asked = requests(seconds, number + 1)
        for name in islice([*WINDOWS, *WINDOWS], number % 3, number % 3 + 3):
            about = ending(Canary(*(one.url for one in both), out=out, words=words)) if name == "canary" else None
            with about or nullcontext() as canary:
                seen[name] += asked_once(both, asked, f"{number} {name}")
                told = {key: told[key] + canary.total(key) for key in told} if canary else told
        yield seen, told


def figures(answers: Answers, canary: dict[str, float]) -> dict[str, object]:
    return {
        "canary": canary, "requests": len(answers["alone"]),
        "ttft_median_s": {name: figure(map(ttft, filter(None, answers[name]))).median for name in WINDOWS},
        "beside_the_canary": asdict(ratios(answers["canary"], answers["alone"])),
        "noise": asdict(ratios(answers["again"], answers["alone"])),
        "other_tokens": {name: other(answers[name], answers["alone"]) for name in ("canary", "again")},
        "failed": sum(answer is None for each in answers.values() for answer in each),
    }  # fmt: skip


def main(given: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--minutes", type=float, default=1.0, help="so many of a user's requests a window [1]")
    parser.add_argument("--model", help="folder [the tests' own]")
    parser.add_argument("--attention", default="FLASH_ATTN" if torch.cuda.is_available() else "strided")
    parser.add_argument(
        "--kv-gib", type=float, default=0.25, help="of each engine's cache; the store has eight times that"
    )
    parser.add_argument("--out", type=Path, default=None)
    parser.add_argument("words", nargs="*", default=WORDS, help="flags of the canary")
    flags = parser.parse_args(given)
    out = flags.out or Path(tempfile.mkdtemp(prefix="canary-ttft-"))
    out.mkdir(parents=True, exist_ok=True)
    on_gpu, kv = torch.cuda.is_available(), int(flags.kv_gib * 2**30)
    about = {
        "device": "cuda" if on_gpu else "cpu", "dtype": "bfloat16", "attention": flags.attention, "beside": 2,
        "kv_cache_memory_bytes": kv, "pool_bytes": 8 * kv, "at_once": 2 if on_gpu else 1, "model": flags.model,
        "pools": Path("/dev/shm"),  # a GPU can pin it
    }  # fmt: skip
    found: dict[str, object] = {}
    with engines_of(out) as engines, on_one_store(engines, out, **about) as (both, _):
        for answers, canary in played(both, flags.rounds, flags.minutes * 60, flags.words, out / "canary"):
            found = figures(answers, canary)
            (out / "ttft.json").write_text(json.dumps(found, indent=1))
            print(time.strftime("%H:%M:%S"), json.dumps(found), flush=True)
    return bool(found["failed"] or found["canary"]["corrupt"])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
