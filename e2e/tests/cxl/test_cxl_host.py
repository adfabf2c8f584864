"""The pool on CXL memory by the stock Linux driver: its contract, writers that are killed, a reboot, two hosts on one
memory, and an engine on the same bytes. The memory is emulated (scripts/cxl-host): nothing here tells of its speed."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from e2e.connectors.embedded import INDEX
from e2e.tests.cxl.guest import GROUPS, everything, get, opened, put
from e2e.tests.cxl.host import DEVICE, ROOT, SIZE, does, started
from e2e.tests.engine.engines import ask, embedded_on, prompts
from e2e.waits import Outcome, wait

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]
SERVED = 1024
RIGHT = {"got": 2 * GROUPS, "right": 2 * GROUPS}
#: In a guest, where no conftest.py finds what it imports.
PYTEST = ["env", f"CXL_DEVICE={DEVICE}", "python3", "-m", "pytest", "-c", "/dev/null", "--noconftest", "-q", "-rs"]
CONTRACT = [f"e2e/tests/unit/inside/test_{name}.py" for name in ("region", "pool")]
KILLED = "e2e/tests/unit/inside/test_killed_writers.py"


@pytest.fixture
def index() -> Iterator[str]:
    """Address of an index of a pool as large as the memory."""
    words = ["-m", "e2e.inside.index.server", "--size", str(SIZE)]
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))}
    process = subprocess.Popen([sys.executable, *words], cwd=ROOT, stdout=subprocess.PIPE, text=True, env=environ)
    yield process.stdout.readline().split()[-1]
    process.kill()
    process.wait(30)
    process.stdout.close()


def test_the_guest_has_a_device_and_a_region(memory):
    on_a_line = "for words in 'daxctl list' 'cxl list -R'; do $words | tr -d '\\n'; echo; done"
    (device,), (region,) = started(memory, "sh", "-c", on_a_line).told()
    assert (device["chardev"], device["mode"], device["size"], device["align"]) == ("dax0.0", "devdax", SIZE, 2 << 20)
    assert (region["type"], region["size"], region["decode_state"]) == ("ram", SIZE, "commit")


def test_the_pool_keeps_its_contract_there(memory):
    """Its wrong accesses included."""
    said = started(memory, *PYTEST, *CONTRACT).said()
    assert " passed" in said
    assert "SKIPPED" not in said, said


def test_writers_are_killed_there(memory):
    said = started(memory, *PYTEST, KILLED, limit_s=1500).said()
    assert "2 passed" in said, said


def test_what_was_stored_is_there_after_a_reboot(memory, index):
    assert does(memory, index, "put:a").told() == [{"put": GROUPS}]
    assert does(memory, index, "get:a").told() == [RIGHT]


def test_what_one_host_stores_another_loads(memory, index):
    one, other = does(memory, index, "put:a", "get:b"), does(memory, index, "get:a", "put:b")
    assert one.told() == [{"put": GROUPS}, RIGHT]
    assert other.told() == [RIGHT, {"put": GROUPS}]


def test_whoever_maps_the_file_is_one_more_host(memory, index):
    pool = opened(index, str(memory))
    put(pool, "a")
    assert does(memory, index, "get:a", "put:b").told() == [RIGHT, {"put": GROUPS}]
    assert get(pool, "b") == RIGHT


@pytest.mark.engine
def test_an_engine_and_a_guest_load_what_the_other_stores(memory, engine, tmp_path):
    (asked,) = prompts([SERVED + 9])
    with engine.store("cxl", tmp_path) as store:
        placed = embedded_on(store, SIZE, embedded_pool_path=str(memory))
        index = store.addresses[INDEX]
        with engine(connector=placed) as client:
            cold = ask(client, asked, max_tokens=4)
            assert cold.cached_tokens == 0
            held = everything(opened(index, str(memory)))
            assert held["groups"] == SERVED // 256
            read, (moved) = does(memory, index, "all", "again").told()
            assert read == held, "the guest reads what the engine stored"
            assert moved == {"again": held["groups"], "moved": held["groups"]}
            assert client.reset_prefix_cache()[0]
            warm = ask(client, asked, max_tokens=4)
            assert (warm.cached_tokens, warm.token_ids) == (SERVED, cold.token_ids), "what the guest stored is loaded"


def test_a_guest_is_gone_with_whoever_started_it(memory):
    guest = started(memory, "sleep", "600").process
    assert wait(lambda: _qemu(memory), limit_s=60) is Outcome.READY
    folder = Path(re.search(r"file:(\S+)/console", _qemu(memory)).group(1))
    guest.send_signal(signal.SIGKILL)
    guest.communicate(timeout=60)
    assert wait(lambda: not _qemu(memory), limit_s=60) is Outcome.READY
    assert folder.is_dir()
    started(memory, "true").said()
    assert not folder.exists(), "the next start sweeps"


def _qemu(memory: Path) -> str:
    """The command line of the guest on ``memory``, empty without one."""
    lines = [" ".join(one.info["cmdline"] or ()) for one in psutil.process_iter(["cmdline"])]
    return next((line for line in lines if f"mem-path={memory}" in line and "timeout -k" not in line), "")
