"""Stores and loads at random until its input ends, and tells what it saw: python engine_on_pool.py ADDRESS FOLDER SEED

Each object is filled with a function of its name, so that wrong bytes show wherever they come from."""

import json
import random
import sys
import threading
import time
from pathlib import Path

from e2e.inside.evidence import Evidence
from e2e.inside.index.client import Client
from e2e.inside.memory import Mapped
from e2e.inside.pool import Pool
from e2e.inside.region import region
from e2e.tests.unit.inside.pools import filled

SIZE = 1 << 20


def content(number: int) -> memoryview:
    return filled(number, 1000 + 97 * number)


def main(address: str, folder: str, seed: str) -> None:
    ended = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
    index = Client(address, limit_s=5.0, rest_s=0.0)
    memory = Mapped(region(f"{folder}/region", SIZE))
    pool = Pool(memory, SIZE, index=index, evidence=Evidence(folder, seed), evict=True)
    rng, seen = random.Random(seed), {"served": 0, "wrong": 0, "missed": 0, "stored": 0}
    print("ready", flush=True)
    while not ended.is_set():
        number = rng.randrange(200)
        name, right = f"g{number}", content(number)
        if rng.random() < 0.5:
            seen["stored"] += pool.put(name, "t", [(name, right)]) == ""
            continue
        (extents,) = pool.locate([name])
        time.sleep(rng.random() / 100)  # meanwhile it may be evicted, and its room be another's
        out = filled(0, right.nbytes)
        if not pool.read(extents.get(name), out):
            seen["missed"] += 1
        elif out == right:
            seen["served"] += 1
        else:
            seen["wrong"] += 1
    Path(f"{folder}/seen-{seed}.json").write_text(json.dumps(seen))


if __name__ == "__main__":
    main(*sys.argv[1:])
