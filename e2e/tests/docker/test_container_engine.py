"""Containers' life on a real Docker engine: started, asked, watched, removed, whoever dies."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest
import requests

from e2e.base.errors import EngineCrashed, EngineRefused, EngineTimeout, SettingsError
from e2e.stack.container import ContainerLauncher
from e2e.stack.containers import OWNER_LABEL, RUN_LABEL, WHERE_LABEL
from e2e.stack.launcher import Engine, Launcher
from e2e.stack.owned import here
from e2e.stack.reaper import reap
from e2e.tests.docker.on_docker import containers_of
from e2e.waits import Outcome, wait

pytestmark = [pytest.mark.docker, pytest.mark.timeout(1800)]
RIG = Path(__file__).with_name("rig_with_container.py")


def test_a_container_lives_and_leaves_nothing_but_its_log(client, start, ledger, recorded):
    engine = start("ready")
    engine.wait_ready(60)
    assert isinstance(engine, Engine)
    (name,) = containers_of(client, ledger.run_id)
    container = client.containers.get(name)
    assert container.attrs["HostConfig"]["PortBindings"]["8000/tcp"] == [{"HostIp": "127.0.0.1", "HostPort": "0"}] or (
        container.ports["8000/tcp"][0]["HostIp"] == "127.0.0.1"
    )
    assert container.attrs["HostConfig"]["ReadonlyRootfs"] is True
    assert requests.get(engine.url, timeout=5).text == str(os.getuid())
    engine.check()
    engine.stop()
    engine.stop()
    assert containers_of(client, ledger.run_id) == []
    assert recorded.kinds() == ["engine.start", "engine.ready", "engine.stop"]
    assert recorded[0]["launcher"] == "docker"
    assert recorded[-1]["graceful"] is True
    assert "stand-in ready" in engine.log_path.read_text()


def test_one_that_ends_before_it_is_ready_says_why(client, start, ledger, recorded):
    with pytest.raises(EngineRefused, match="ValueError: this engine refuses"):
        start("refuse").wait_ready(60)
    assert recorded.kinds() == ["engine.start", "engine.failed"]


def test_one_that_is_late_says_its_last_word(start):
    with pytest.raises(EngineTimeout, match="not ready within 3 s; its last word: stand-in silent"):
        start("silent").wait_ready(3)


def test_one_that_crashes_is_seen(start, recorded):
    engine = start("ready")
    engine.wait_ready(60)
    with pytest.raises(requests.RequestException):
        requests.get(f"{engine.url}/crash", timeout=5)
    with pytest.raises(EngineCrashed, match="ended with exit code 9"):
        engine.check(settle_s=10)
    assert recorded[-1]["stage"] == "run"


def test_an_image_that_is_not_here(client, ledger):
    with pytest.raises(SettingsError, match=r"image none/such:1 is not here; build it .* --image\.$"):
        ContainerLauncher(ledger=ledger, image="none/such:1", environ=os.environ)


def test_the_run_s_end_removes_what_nobody_stopped(client, start, ledger):
    engine = start("ready")
    engine.wait_ready(60)
    assert isinstance(engine._launcher, Launcher)
    ledger.close()
    assert containers_of(client, ledger.run_id) == []


class Killed:
    """A rig in a process of its own that has, or is just starting, a container."""

    def __init__(self, run_id: str, folder: Path, image: str) -> None:
        self.run_id = run_id
        self.process = subprocess.Popen(
            [sys.executable, str(RIG), run_id, str(folder), image], stdout=subprocess.PIPE, text=True
        )
        word, pid = self.process.stdout.readline().split()
        assert word == "watchdog"
        self.watchdog = int(pid)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()


def test_the_watchdog_removes_the_container_of_a_killed_rig(client, images, stand_in, tmp_path):
    rig = Killed(f"killed-{os.getpid()}", tmp_path, images)
    assert rig.process.stdout.readline() == "ready\n"
    assert len(containers_of(client, rig.run_id)) == 1
    rig.kill()
    assert wait(lambda: not containers_of(client, rig.run_id), limit_s=30) is Outcome.READY
    assert wait(lambda: not list((tmp_path / "state").glob("*.json")), limit_s=30) is Outcome.READY


def test_the_next_start_removes_it_when_the_watchdog_died_too(client, images, stand_in, tmp_path):
    rig = Killed(f"killed-too-{os.getpid()}", tmp_path, images)
    assert rig.process.stdout.readline() == "ready\n"
    os.kill(rig.watchdog, 9)
    rig.kill()
    assert len(containers_of(client, rig.run_id)) == 1
    (reaped,) = reap(state_dir=tmp_path / "state")
    assert len(reaped.containers) == 1
    assert containers_of(client, rig.run_id) == []


def test_twenty_kills_at_random_moments_leave_nothing(client, images, stand_in, tmp_path):
    seed = random.randrange(10**6)
    moments = random.Random(seed)
    runs = []
    for number in range(20):
        rig = Killed(f"random-{os.getpid()}-{number}", tmp_path, images)
        runs.append(rig.run_id)
        if number % 2:
            os.kill(rig.watchdog, 9)
        time.sleep(moments.uniform(0, 3))
        rig.kill()

    def left() -> list[str]:
        return [name for run_id in runs for name in containers_of(client, run_id)]

    def reaped() -> bool:
        reap(state_dir=tmp_path / "state")
        return not left() and not list((tmp_path / "state").glob("*.json"))

    assert wait(reaped, limit_s=60, every_s=1) is Outcome.READY, (seed, left())


@pytest.mark.parametrize(
    "labels",
    [
        {},
        {RUN_LABEL: "strange", WHERE_LABEL: "elsewhere/pid:[1]", OWNER_LABEL: json.dumps({"pid": 1, "created": 0})},
        {RUN_LABEL: "strange", WHERE_LABEL: here(), OWNER_LABEL: "no owner"},
    ],
)
def test_what_is_not_ours_is_not_touched(client, images, ledger, labels):
    stranger = client.containers.run(images, ["sleep", "600"], detach=True, labels=labels, init=True)
    try:
        ContainerLauncher(ledger=ledger, image=images, environ=os.environ)
        stranger.reload()
        assert stranger.status == "running"
    finally:
        stranger.remove(force=True)


def test_an_owner_that_is_dead_and_whose_file_is_lost(client, images, ledger):
    owner = json.dumps({"pid": 4194304, "created": 0})
    labels = {RUN_LABEL: "lost", WHERE_LABEL: here(), OWNER_LABEL: owner}
    client.containers.create(images, ["true"], labels=labels)
    ContainerLauncher(ledger=ledger, image=images, environ=os.environ)
    assert containers_of(client, "lost") == []
