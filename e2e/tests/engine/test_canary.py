"""A canary beside two real engines on one store that others use: quiet as long as all is well, loud once a load is
wrong, within what it said that it would take."""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import sys
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest
from prometheus_client.parser import text_string_to_metric_families

from e2e.canary.odds import needed
from e2e.connectors.table import load
from e2e.grid.cells import expand
from e2e.grid.selection import Selection
from e2e.stack.store import Store
from e2e.tests.engine.engines import ask, prompts
from e2e.tests.engine.tiny import tiny_model

pytestmark = [pytest.mark.engine, pytest.mark.long, pytest.mark.timeout(1500)]

#: One chunk in so many is spoilt, by its key, once the file is there: the connector's own fault, but larger and later.
ONE_IN = 10
FAULTY = f"""
import os, zlib
from e2e.inside.connector import EmbeddedConnector
from e2e.inside.faults.rare import RareBitFlip

def found(self, key, kv, scene):
    if not os.path.exists(os.environ["CANARY_TEST_FAULT"]) or zlib.crc32(key.encode()) % {ONE_IN}:
        return kv
    scene.fired()
    return kv.roll(1, dims=2)

RareBitFlip.found = found
"""
#: Clean probes before the fault, and the longest that each part takes.
CLEAN, LIMIT_S = 20, 420.0
#: A prompt has one to three chunks.
SHARE = 1 - (1 - 1 / ONE_IN) ** 2


class Canary:
    """The command as a user runs it, and its metrics."""

    def __init__(self, *urls: str, out, words=()) -> None:
        targets = [word for url in urls for word in ("--target", url)]
        self.out = out
        self.process = subprocess.Popen(
            [
                sys.executable, "-m", "e2e.cli", "canary", *targets, "--listen", "127.0.0.1:0", "--out", str(out),
                *words,
            ],
            stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        self.said: list[str] = []
        self.port = re.search(r":(\d+), recordings", self.process.stderr.readline())[1]
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


def loads_of(coverage: str) -> int:
    """Of all pairs, in the table of coverage.txt."""
    rows = [line.split("  ") for line in coverage.splitlines() if line.startswith("cross")]
    return sum(int([cell for cell in row if cell.strip()][3]) for row in rows)


@contextmanager
def users(*clients) -> Iterator[Counter]:
    """A bounded load of random requests. Counts answers and failures."""
    stop, seen, chance = threading.Event(), Counter(), random.Random(14)

    def use() -> None:
        asked = prompts([chance.randrange(100, 600) for _ in range(6)])
        while not stop.wait(chance.uniform(1, 4)):
            try:
                ask(chance.choice(clients), chance.choice(asked), salt="users", max_tokens=8)
                seen["answered"] += 1
            except Exception:
                seen["failed"] += 1

    thread = threading.Thread(target=use, daemon=True)
    thread.start()
    try:
        yield seen
    finally:
        stop.set()
        thread.join(60)


@pytest.fixture
def two(engine, tmp_path):
    """Two engines on one store, whose connector can be made to spoil what it finds; the file that does so."""
    (tmp_path / "canary_faulty.py").write_text(FAULTY)
    flag = tmp_path / "fault"
    with Store(
        "canary", parent=tmp_path, ledger=engine.ledger, environ=dict(os.environ), log_dir=tmp_path / "logs",
        record=lambda kind, **data: None,
    ) as store:  # fmt: skip
        adapter = load("embedded", pool_bytes=256 << 20)
        config = adapter.config(expand(Selection(), adapter).cells[0], pool_dir=str(store.folder), block_size=16)
        config = store.give(config)
        config = replace(
            config, module_path="canary_faulty", extra={**config.extra, "embedded_fault": "rare_bit_flip"},
            env={**config.env, "PYTHONPATH": str(tmp_path), "CANARY_TEST_FAULT": str(flag)},
        )  # fmt: skip
        more = {"connector": config, "layout": "NHD", "model": tiny_model(), "start": "stock"}
        with engine(**more) as one, engine(**more) as other:
            yield one, other, flag


def test_quiet_while_all_is_well_and_loud_within_the_stated_probes_once_it_is_not(two, tmp_path):
    one, other, flag = two
    out = tmp_path / "out"
    words = ("--share", "100%", "--tokens-a-minute", "1000000", "--store-tokens", "1000000", "--longest", "800")
    with users(one, other) as used:
        canary = Canary(one.url, other.url, out=out, words=words)
        try:
            clean_s = canary.until("loads", CLEAN, LIMIT_S)
            before, exact = canary.total("loads"), canary.total("loads", "exact")
            assert before >= CLEAN, (canary.metrics(), canary.said)
            assert canary.total("corrupt") == canary.total("probes", "unconfirmed") == 0, canary.said
            canary.process.kill()
            canary = Canary(one.url, other.url, out=out, words=words)
            canary.until("loads", 1, LIMIT_S)
            assert canary.total("corrupt") == 0
            assert loads_of((out / "coverage.txt").read_text()) > before, "it goes on where it was killed"
            before = canary.total("loads")
            flag.touch()
            took_s = canary.until("corrupt", 1, LIMIT_S)
            loads = canary.total("loads") - before
            print(f"{clean_s:.0f} s for {CLEAN} clean loads, {exact:.0f} of them exact")
            print(f"alert after {took_s:.0f} s, {loads:.0f} loads; users: {dict(used)}; {canary.costs()}")
            assert canary.total("corrupt") >= 1, (canary.metrics(), canary.said)
            # by n probes it is seen with 95 %; thrice as many leave one miss in 8,000
            assert loads <= 3 * needed(SHARE)
        finally:
            code = canary.end()
    assert used["answered"] > 5
    assert not used["failed"]
    assert code == 1, canary.said
    marked = next((tmp_path / "out").glob("*/corrupt")).parent
    words = [sys.executable, "-m", "e2e.cli", "judge", str(marked)]
    judged = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    assert judged.returncode == 1, judged.stdout + judged.stderr
    cells = json.loads((marked / "report.json").read_text())["cells"]
    assert any(cell["verdict"] == "corrupt" for cell in cells)
