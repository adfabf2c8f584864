"""kill -9 of the rig after each kind of step of a program: no process, pool, server or port is left."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from story_to_kill import STEPS

from e2e.stack.owned import MARK, marked
from e2e.waits import Outcome, wait

HERE = Path(__file__).parent
STAND_IN = HERE.parent / "unit" / "stack" / "stand_in_server.py"


@pytest.fixture
def environ(tmp_path):
    """Of a rig whose engines are stand-ins that leave a child behind."""
    package = tmp_path / "stand_in" / "vllm" / "entrypoints" / "openai"
    package.mkdir(parents=True)
    shutil.copy(STAND_IN, package / "api_server.py")
    for folder in (package, package.parent, package.parent.parent):
        (folder / "__init__.py").touch()
    path = os.pathsep.join((str(tmp_path / "stand_in"), str(HERE.parents[2])))
    return {**os.environ, "PYTHONPATH": path, "STAND_IN": "ready", "STAND_IN_CHILD": "1"}


@pytest.mark.kill
@pytest.mark.parametrize("how", ["stock", "fork"])
@pytest.mark.parametrize("kind", STEPS)
def test_nothing_is_left_of_a_story_that_was_killed(tmp_path, environ, kind, how):
    run_id = f"story-{os.getpid()}-{tmp_path.name[-12:]}"
    command = [sys.executable, str(HERE / "story_to_kill.py"), run_id, str(tmp_path), how, kind]
    if kind == "stop":
        environ["STAND_IN_CHILD"] = ""  # it heeds no SIGINT, and a stop that asks would wait for it
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environ) as rig:
        try:
            at = json.loads(rig.stdout.readline())

            def left() -> list[str]:
                found = [f"process {process.pid}" for process in marked(MARK, run_id)]
                found += [path for path in at["folders"] if Path(path).exists()]
                found += [f"port {port}" for port in at["ports"] if listens(port)]
                return found + [str(path) for path in (tmp_path / "state").glob("*.json")]

            before = left()
            assert len([what for what in before if what.startswith("process")]) >= 2, before
            assert set(at["folders"]) <= {*before}
        finally:
            rig.kill()
    assert wait(lambda: not left(), limit_s=30) is Outcome.READY, left()


def listens(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0
