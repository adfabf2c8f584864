"""Real Maru in a guest of scripts/cxl-host, on its DAX device: python3 -m e2e.tests.cxl.maru_there

Starts the resource manager and maru-server, stores objects by one process and retrieves them by another, kills
maru-server, and prints what was seen, a line of JSON. Maru is what was brought into the guest.
"""

from __future__ import annotations

import json
import multiprocessing
import platform
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path

from e2e.tests.unit.inside.pools import content

MANAGER, SERVER = "127.0.0.1:9850", "tcp://127.0.0.1:5555"
POOL, PAGE, OBJECTS = 64 << 20, 64 << 10, 32
LOGS = Path("/tmp")


def unexpected(seen: Mapping[str, object], device: str) -> list[str]:
    """What of ``main``'s line is not as July's version does it on ``device``."""
    wrong = {
        "not every object that one process stored was retrieved by another": (
            (seen["stored"], seen["right"], seen["of"]) != (True, OBJECTS, OBJECTS)
        ),
        "the resource manager has put no header on the device": not any(device in line for line in seen["device"]),
        "clients don't find the device by that header": seen["scanned"] != [device],
        "what a dead server gave is not taken back": seen["reaped"] != ["[REAPER] reaped 2 dead allocations"],
    }
    return [what for what, holds in wrong.items() if holds]


def server(name: str, *words: str, ready: str) -> subprocess.Popen:
    """Started, and its line that it is ready has come."""
    log = LOGS / f"{name}.log"
    with log.open("wb") as out:
        process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=out, stderr=out)
    for _ in range(600):
        if ready in log.read_text(errors="replace"):
            return process
        if process.poll() is not None:
            break
        threading.Event().wait(0.1)
    sys.exit(f"{name} is not ready: {log.read_text(errors='replace')[-2000:]}")


def handler(who: str) -> object:
    from maru_common import MaruConfig
    from maru_handler import MaruHandler

    made = MaruHandler(
        MaruConfig(server_url=SERVER, instance_id=who, pool_size=POOL, chunk_size_bytes=PAGE, timeout_ms=20_000)
    )
    if not made.connect():
        sys.exit(f"{who} can't connect")
    return made


def store() -> None:
    with handler("one") as one:
        for number in range(OBJECTS):
            data = content(f"object {number}")
            page = one.alloc(data.nbytes)
            page.buf[:] = data
            if not one.store(f"object {number}", page):
                sys.exit(f"object {number} is not stored")


def retrieve(told: object) -> None:
    right = 0
    other = handler("other")
    for number in range(OBJECTS):
        found = other.retrieve(f"object {number}")
        right += found is not None and bytes(found.view) == bytes(content(f"object {number}"))
    told.put(right)


def main() -> None:
    seen: dict[str, object] = {"kernel": platform.release()}
    manager = server(
        "manager", "maru-resource-manager", "-H", "127.0.0.1", "-p", MANAGER[-4:], "-d", "/tmp/state", "-l", "debug",
        ready="ready",
    )  # fmt: skip
    words = ["--host", "127.0.0.1", "--port", SERVER[-4:], "--rm-address", MANAGER]
    maru = server("server", sys.executable, "-m", "maru_server", *words, ready="RPC Server started")
    spawn = multiprocessing.get_context("spawn")
    one = spawn.Process(target=store)
    one.start()
    one.join(120)
    seen["stored"] = one.exitcode == 0
    told = spawn.SimpleQueue()
    other = spawn.Process(target=retrieve, args=(told,))
    other.start()
    other.join(120)
    seen["right"], seen["of"] = (0 if told.empty() else told.get()), OBJECTS
    maru.kill()
    maru.wait(30)
    from maru_shm.device_scanner import scan_dax_devices

    deadline = time.monotonic() + 60
    while "reaped" not in (LOGS / "manager.log").read_text(errors="replace") and time.monotonic() < deadline:
        threading.Event().wait(0.5)
    manager.kill()
    manager.wait(30)
    log = (LOGS / "manager.log").read_text(errors="replace").splitlines()
    seen["device"] = [line for line in log if "UUID=" in line]
    seen["reaped"] = [line for line in log if "reaped" in line]
    seen["scanned"] = [path for _, path in scan_dax_devices()]
    print(json.dumps(seen), flush=True)


if __name__ == "__main__":
    main()
