from __future__ import annotations

import itertools
import os
import shutil
import time
from pathlib import Path

import pytest

from e2e.base.event import Event
from e2e.stack.ledger import Ledger
from e2e.stack.process import ProcessLauncher
from e2e.stack.spec import EngineSpec
from e2e.stack.zygote import Zygote

CLONE = Path(__file__).resolve().parents[4]
_numbers = itertools.count()


@pytest.fixture
def recorded():
    """Events in the order in which they were recorded; call it to record."""

    class Recorded(list):
        def __call__(self, kind, **data):
            self.append(Event(kind, data, time.monotonic_ns()))
            return self[-1]

        def kinds(self):
            return [event.kind for event in self]

        def one(self, kind):
            (event,) = [event for event in self if event.kind == kind]
            return event

    return Recorded()


@pytest.fixture
def run_id():
    return f"test-{os.getpid()}-{next(_numbers)}"


@pytest.fixture
def ledger(run_id, tmp_path):
    with Ledger(run_id=run_id, state_dir=tmp_path / "state") as ledger:
        yield ledger


@pytest.fixture
def stand_in_path(tmp_path) -> str:
    """A PYTHONPATH in which ``python -m vllm.entrypoints.openai.api_server`` is the stand-in."""
    package = tmp_path / "stand_in" / "vllm" / "entrypoints" / "openai"
    package.mkdir(parents=True)
    shutil.copy(Path(__file__).with_name("stand_in_server.py"), package / "api_server.py")
    for folder in (package, package.parent, package.parent.parent):
        (folder / "__init__.py").touch()
    return os.pathsep.join((str(tmp_path / "stand_in"), str(CLONE)))


@pytest.fixture(params=["stock", "fork"])
def zygote(request, ledger):
    """What forks engines, or None: an engine's life is the same either way."""
    if request.param == "stock":
        yield None
        return
    with Zygote(ledger=ledger) as zygote:
        yield zygote


@pytest.fixture
def start(ledger, zygote, stand_in_path, tmp_path, recorded):
    """start(mode, **environment) -> engine, stopped at the end of the test."""
    engines = []

    def start(mode, *, hold_port=None, **environment):
        environ = {**os.environ, "PYTHONPATH": stand_in_path, "STAND_IN": mode, **environment}
        options = {"hold_port": hold_port} if hold_port else {}
        launcher = ProcessLauncher(ledger=ledger, environ=environ, zygote=zygote, **options)
        spec = EngineSpec(name=f"HND.baseline.{len(engines)}", engine_key="HND", role="baseline", model="none/such")
        engines.append(launcher.start(spec, log_path=tmp_path / "logs" / f"{spec.name}.log", record=recorded))
        return engines[-1]

    yield start
    for engine in engines:
        engine.stop(1)
