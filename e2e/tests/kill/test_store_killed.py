"""kill -9 of the rig while a store is open, and no engine: neither its index, nor its port, nor its pool is left."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from e2e.stack.owned import MARK, marked
from e2e.waits import Outcome, wait

pytestmark = pytest.mark.kill


def test_an_open_store_is_reaped(tmp_path):
    run_id = f"kill-store-{os.getpid()}"
    command = [sys.executable, str(Path(__file__).with_name("store_to_kill.py")), run_id, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as rig:
        ready, port, folder = rig.stdout.readline().split()
        assert ready == "ready"

        def left() -> list[str]:
            found = [f"process {process.pid}" for process in marked(MARK, run_id)]
            found += [str(path) for path in (Path(folder), tmp_path / "state" / f"{run_id}.json") if path.exists()]
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", int(port))) == 0:
                    found.append(f"port {port}")
            return found

        assert len(left()) == 4, left()
        rig.kill()
    assert wait(lambda: not left(), limit_s=60) is Outcome.READY, left()
