"""kill -9 of the rig after each kind of step of a program with containers: none is left, and no server or pool."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from e2e.stack.owned import MARK, marked
from e2e.tests.docker.on_docker import containers_of
from e2e.tests.kill import story_to_kill
from e2e.waits import Outcome, wait

SCRIPT = Path(story_to_kill.__file__)
pytestmark = [pytest.mark.docker, pytest.mark.kill, pytest.mark.timeout(1800)]


@pytest.mark.parametrize("kind", story_to_kill.STEPS)
def test_no_container_is_left_of_a_story_that_was_killed(client, images, stand_in, tmp_path, kind):
    run_id = f"story-{os.getpid()}-{tmp_path.name[-12:]}"
    command = [sys.executable, str(SCRIPT), run_id, str(tmp_path), images, kind]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as rig:
        try:
            at = json.loads(rig.stdout.readline())

            def left() -> list[str]:
                found = [f"process {process.pid}" for process in marked(MARK, run_id)]
                found += [path for path in at["folders"] if Path(path).exists()]
                found += containers_of(client, run_id)
                return found + [str(path) for path in (tmp_path / "state").glob("*.json")]

            assert containers_of(client, run_id)
            assert {*at["folders"]} <= {*left()}
        finally:
            rig.kill()
    assert wait(lambda: not left(), limit_s=60) is Outcome.READY, left()
