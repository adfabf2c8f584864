"""An engine whose store is of no use: recorded is a failure of that engine, with the server's own cause."""

from __future__ import annotations

import io
import sys
import uuid
from contextlib import ExitStack
from types import SimpleNamespace

import pytest

from e2e import flow as flows
from e2e.base.connector import ConnectorConfig, ServiceSpec
from e2e.base.errors import EngineRefused
from e2e.connectors.embedded import Embedded
from e2e.flow import Flow, Name
from e2e.material import Material
from e2e.recording.journal import Journal, read
from e2e.report.progress import Progress
from e2e.settings.settings import Settings
from e2e.stack.ledger import Ledger
from e2e.stack.spec import EngineSpec
from e2e.standing import Standing

NAME = "HND.connector.1.1"


@pytest.fixture
def flow(tmp_path, monkeypatch):
    (tmp_path / "pools").mkdir()
    monkeypatch.setattr(flows, "shared_memory", lambda: tmp_path / "pools")
    with (
        Ledger(run_id=f"t{uuid.uuid4().hex[:8]}", state_dir=tmp_path / "state") as ledger,
        Journal(tmp_path / "recording.jsonl") as journal,
        Progress(io.StringIO(), {"start": 1}) as progress,
    ):
        standing = Standing(journal.record, directory=tmp_path)
        made_of = Material("python", "model", None, None, (), None)
        yield Flow(Settings(out=tmp_path), Embedded(), made_of, standing, progress, Name.new(), ledger, None)


def plan_with(service):
    connector = ConnectorConfig("Mine", services=(service,))
    spec = EngineSpec(name=NAME, engine_key="HND", role="connector", model="m", connector=connector)
    return SimpleNamespace(key="HND", spec=lambda role, **more: spec)


def server(code, **more):
    return ServiceSpec(name="pool", argv=(sys.executable, "-c", code), cure="give it one", **more)


def test_a_server_that_does_not_start_fails_the_engine(flow, tmp_path):
    with pytest.raises(EngineRefused, match="pool is of no use"), ExitStack() as stack:
        flow._started(plan_with(server("raise SystemExit('no pool')", ready="never")), "connector", NAME, stack)
    began, failed = [event for event in read(tmp_path / "recording.jsonl") if event.kind != "note"]
    assert (began.kind, began["launcher"], began["engine"]) == ("engine.start", "service", NAME)
    assert began["log"] == str(tmp_path / "logs" / f"{NAME}.pool.log")
    assert (failed.kind, failed["stage"], failed["log_tail"]) == ("engine.failed", "start", "no pool")
    assert list((tmp_path / "pools").glob("*/*/*")) == []


def test_a_server_that_died_fails_the_engine_that_runs(flow, tmp_path):
    with flow._store(NAME, tmp_path / "logs") as store:
        about = {"role": "connector", "attempt": 1, "argv": [], "launcher": "process", "log": None}
        flow.record("engine.start", engine=NAME, engine_key="HND", **about)
        store.serve([server("print('up', flush=True); import time; time.sleep(0.1)", ready="up")])
        store.services[0].child.handle.wait(30)
        assert not flow._serves(SimpleNamespace(name=NAME, store=store))
    failed = read(tmp_path / "recording.jsonl")[-1]
    assert (failed.kind, failed["engine"], failed["stage"]) == ("engine.failed", NAME, "run")
    assert failed["cause"] == "pool ended with exit code 0 under a running engine"
