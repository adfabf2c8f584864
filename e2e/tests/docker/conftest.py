"""A Docker engine and the two images; both are really there, or the tests are skipped (in CI: fail)."""

from __future__ import annotations

import itertools
import os
import shutil
import socket
import time
from pathlib import Path

import docker
import pytest

from e2e.base.errors import SettingsError
from e2e.base.event import Event
from e2e.settings.settings import ENGINE_IMAGE
from e2e.stack.container import ContainerLauncher
from e2e.stack.containers import connect
from e2e.stack.ledger import Ledger
from e2e.stack.spec import EngineSpec
from e2e.tests.docker.on_docker import compose

BUILD_LIMIT_S = 1800
_numbers = itertools.count()


@pytest.fixture(scope="session")
def client() -> docker.DockerClient:
    try:
        return connect()
    except SettingsError as error:
        if os.environ.get("CI"):
            pytest.fail(str(error))
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def images(client) -> str:
    """Builds what is not built yet; returns the engine's image."""
    built = compose("--profile", "build", "build", "--quiet", "rig", "engine-image", limit_s=BUILD_LIMIT_S)
    assert built.returncode == 0, built.stdout
    return ENGINE_IMAGE


@pytest.fixture
def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture
def stand_in(tmp_path) -> dict[str, str]:
    """Environment in which the image's ``python -m vllm.entrypoints.openai.api_server`` is the stand-in."""
    package = tmp_path / "stand_in" / "vllm" / "entrypoints" / "openai"
    package.mkdir(parents=True)
    shutil.copy(Path(__file__).with_name("stand_in_server.py"), package / "api_server.py")
    for folder in (package, package.parent, package.parent.parent):
        (folder / "__init__.py").touch()
    return {"PYTHONPATH": str(tmp_path / "stand_in")}


@pytest.fixture
def recorded():
    """Events in the order in which they were recorded; call it to record."""

    class Recorded(list):
        def __call__(self, kind, **data):
            self.append(Event(kind, data, time.monotonic_ns()))
            return self[-1]

        def kinds(self):
            return [event.kind for event in self]

    return Recorded()


@pytest.fixture
def ledger(tmp_path):
    with Ledger(run_id=f"docker-{os.getpid()}-{next(_numbers)}", state_dir=tmp_path / "state") as ledger:
        yield ledger


@pytest.fixture
def start(images, ledger, stand_in, tmp_path, recorded):
    """start(mode) -> a container engine, stopped at the end of the test."""
    engines = []

    def start(mode):
        launcher = ContainerLauncher(ledger=ledger, image=images, environ=os.environ)
        env = {**stand_in, "STAND_IN": mode}
        spec = EngineSpec(name="HND.baseline.1", engine_key="HND", role="baseline", model="none/such", env=env)
        engines.append(launcher.start(spec, log_path=tmp_path / "logs" / "engine.log", record=recorded))
        return engines[-1]

    yield start
    for engine in engines:
        engine.stop(1)
