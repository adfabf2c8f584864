"""Real engines on one store whose loads can be spoilt, users beside them, and a canary: for tests of the canary."""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys
import threading
import time
import urllib.request
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from e2e.replay.client import EngineClient
from e2e.replay.stream import Completion
from e2e.tests.engine.engines import Engines, ask, embedded_on
from e2e.tests.engine.tiny import tiny_model

#: One load in so many is spoilt, by the key of its last chunk, once the file is there: the connector's own fault, but
#: larger, more often and later.
ONE_IN = 10
FAULTY = f"""
import os, zlib
from e2e.inside.faults.rare import RareBitFlip

def keys(self, keys, stored, scene):
    if keys and os.path.exists(os.environ["CANARY_TEST_FAULT"]) and zlib.crc32(keys[-1].encode()) % {ONE_IN} == 0:
        self.struck.add(keys[-1])
    return keys

def found(self, key, kv, scene):
    if key not in self.struck:
        return kv
    scene.fired()
    return kv.roll(1, dims=2)

RareBitFlip.struck, RareBitFlip.keys, RareBitFlip.found = set(), keys, found

from e2e.inside.connector import EmbeddedConnector
"""


@contextmanager
def on_one_store(
    engines: Engines,
    folder: Path,
    number: int = 2,
    *,
    pool_bytes: int = 2 << 30,
    pools: Path | None = None,
    at_once: int = 1,
    **more: object,
) -> Iterator[tuple[list[EngineClient], Path]]:
    """So many engines, ``at_once`` of them start, and the file that spoils what they load. ``folder``: exists, and no
    others' were there. ``pool_bytes``: more than a local cache holds, so that what is old is loaded. ``pools``: where
    its folder is made. ``more``: settings of EngineSpec."""
    (folder / "canary_faulty.py").write_text(FAULTY)
    flag = folder / "fault"
    with engines.store("canary", folder, pools=pools) as store:
        config = embedded_on(store, pool_bytes, embedded_evict=True, embedded_fault="rare_bit_flip")
        path = [str(folder), *filter(None, [os.environ.get("PYTHONPATH")])]
        config = replace(
            config, module_path="canary_faulty",
            env={**config.env, "PYTHONPATH": os.pathsep.join(path), "CANARY_TEST_FAULT": str(flag)},
        )  # fmt: skip
        more = {"layout": "NHD", "start": "stock", **more}
        more["model"] = more.get("model") or tiny_model()
        with ExitStack() as stack:
            with ThreadPoolExecutor(at_once) as starting:
                started = (engines(connector=config, **more) for _ in range(number))
                both = [*starting.map(stack.enter_context, started)]
            yield both, flag


def spending(share: str, *, longest: int) -> tuple[str, ...]:
    """Flags of a canary that nothing but its share of the served tokens holds up."""
    freely = "1000000"
    return (
        "--share", share, "--tokens-a-minute", freely, "--store-tokens", freely, "--longest", str(longest),
    )  # fmt: skip


class Canary:
    """The command as a user runs it, and its metrics."""

    def __init__(self, *urls: str, out: Path, words: Sequence[str] = (), port: int = 0) -> None:
        targets = [word for url in urls for word in ("--target", url)]
        self.out = out
        self.process = subprocess.Popen(
            [
                sys.executable, "-m", "e2e.cli", "canary", *targets, "--listen", f"127.0.0.1:{port}",
                "--out", str(out), *words,
            ],
            stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        self.said: list[str] = []
        self.port = int(re.search(r":(\d+), recordings", self.process.stderr.readline())[1])
        threading.Thread(target=lambda: self.said.extend(self.process.stderr), daemon=True).start()

    def metrics(self) -> dict[tuple[str, ...], float]:
        """(name, values of labels in order) -> value, of counters and gauges."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=10) as page:
            families = text_string_to_metric_families(page.read().decode())
            return {(s.name, *s.labels.values()): s.value for family in families for s in family.samples}

    def total(self, name: str, *labels: str) -> float:
        metrics = self.metrics().items()
        return sum(value for key, value in metrics if key[0] == f"maru_canary_{name}_total" and {*labels} <= {*key})

    def costs(self) -> str:
        return f"{self.total('tokens'):.0f} tokens spent, {self.total('stored_tokens'):.0f} stored"

    def until(self, name: str, least: float, limit_s: float) -> float:
        """Seconds until a counter had risen so far; the limit where it did not."""
        began = time.monotonic()
        while self.total(name) < least and time.monotonic() - began < limit_s and self.process.poll() is None:
            time.sleep(1)
        return time.monotonic() - began

    def end(self) -> int:
        self.process.terminate()
        return self.process.wait(30)


@contextmanager
def ending(canary: Canary) -> Iterator[Canary]:
    try:
        yield canary
    finally:
        canary.end()


@dataclass(frozen=True)
class Request:
    """Of a user: ``at_s`` after the first, to engine 0 or 1."""

    at_s: float
    engine: int
    token_ids: tuple[int, ...]


#: Requests a second, and tokens of what several of them begin with; one in so many begins with something new.
RATE, DOCUMENT, NEW = 0.75, 1792, 12
#: So many documents are asked about at a time. Another engine than that which stored one is asked some requests later,
#: so that what it finds does not hang on how long a store takes.
ASKED, LATER = 8, 4
OUTPUT = 6


def requests(seconds: float, seed: int) -> list[Request]:
    """What users ask in so long: equal seeds, equal requests. Each begins with a document and ends with a tail of its
    own, so some of it is in a local cache, in the store, or nowhere."""
    chance = random.Random(seed)

    def tokens(number: int) -> tuple[int, ...]:
        return tuple(chance.randrange(1000, 40_000) for _ in range(number))

    documents: deque[tuple[int, int, tuple[int, ...]]] = deque(maxlen=ASKED)
    found: list[Request] = []
    at_s = 0.0
    while (at_s := at_s + chance.expovariate(RATE)) < seconds:
        number, engine = len(found), chance.randrange(2)
        if not documents or chance.randrange(NEW) == 0:
            documents.append((number, engine, tokens(DOCUMENT)))
            document = documents[-1]
        else:
            document = chance.choice(documents)
        first, home, text = document
        engine = engine if number - first >= LATER else home
        found.append(Request(at_s, engine, text + tokens(chance.randrange(20, 200))))
    return found


@dataclass
class Users:
    """Sends requests one after the other. ``paced``: at their times, else with a short pause between two. ``answers``:
    in their order, None for one that failed."""

    clients: Sequence[EngineClient]
    paced: bool
    pause_s: float = 0.1
    salt: str = "users"

    def __post_init__(self) -> None:
        self.answers: list[Completion | None] = []
        self.stop = threading.Event()

    def play(self, asked: Sequence[Request]) -> list[Completion | None]:
        """Until all are answered; at their times until the last one was to be sent."""
        began = time.monotonic()
        for request in asked:
            passed_s = time.monotonic() - began
            late = self.paced and passed_s > asked[-1].at_s
            if late or self.stop.wait(max(request.at_s - passed_s, 0.0) if self.paced else self.pause_s):
                break
            try:
                self.answers.append(
                    ask(self.clients[request.engine], list(request.token_ids), salt=self.salt, max_tokens=OUTPUT)
                )
            except Exception:  # whatever it was, a user has no answer
                self.answers.append(None)
        return self.answers


@contextmanager
def users(*clients: EngineClient, seconds: float = 3600.0, seed: int = 14) -> Iterator[Users]:
    """A bounded load of requests beside whatever happens."""
    at_work = Users(clients, paced=True)
    thread = threading.Thread(target=at_work.play, args=[requests(seconds, seed)], daemon=True)
    thread.start()
    try:
        yield at_work
    finally:
        at_work.stop.set()
        thread.join(60)
