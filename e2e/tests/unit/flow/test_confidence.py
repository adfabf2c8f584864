"""What an engine was told in confidence stays in no log of its own, even when it never got ready."""

from __future__ import annotations

import io
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace

import pytest

from e2e.base.connector import ConnectorConfig
from e2e.base.errors import EngineRefused
from e2e.connectors.embedded import Embedded
from e2e.flow import Flow, Name
from e2e.material import Material
from e2e.recording.journal import Journal
from e2e.report.progress import Progress
from e2e.settings.settings import Settings
from e2e.stack.ledger import Ledger
from e2e.stack.owned import RunFile
from e2e.stack.spec import EngineSpec
from e2e.standing import Standing

KEY = "tok-1234567890abcdef"
CONNECTOR = ConnectorConfig("Mine", env={"MY_TOKEN": KEY}, extra={"db_password": f"of-{KEY}"})
SPEC = EngineSpec(
    name="HND.connector.1.1", engine_key="HND", role="connector", model="m", device="cpu", connector=CONNECTOR
)


class Launcher:
    @contextmanager
    def start(self, spec, *, log_path, record):
        log_path.parent.mkdir(parents=True)
        log_path.write_text(f"args: {spec.connector.extra} {spec.connector.env}\n")
        (state,) = (log_path.parents[1] / "state").glob("*.json")
        assert RunFile.read(state).logs == [str(log_path.with_suffix(""))], "it is known before the engine starts"
        yield SimpleNamespace(wait_ready=self.refuse)

    def refuse(self, limit_s):
        raise EngineRefused("it ended")


def test_an_engine_that_never_got_ready(tmp_path, monkeypatch):
    monkeypatch.setattr(Flow, "_launcher", lambda self: Launcher())
    plan = SimpleNamespace(key="HND", spec=lambda role, **more: SPEC)
    screen = io.StringIO()
    with (
        Ledger(run_id=tmp_path.name, state_dir=tmp_path / "state") as ledger,
        Journal(tmp_path / "recording.jsonl") as journal,
        Progress(screen, {"start": 1}) as progress,
    ):
        standing = Standing(journal.record, directory=tmp_path)
        made_of = Material("python", "model", None, None, (), None)
        flow = Flow(Settings(out=tmp_path), Embedded(), made_of, standing, progress, Name.new(), ledger, None)
        with pytest.raises(EngineRefused), ExitStack() as stack:
            flow._started(plan, "connector", SPEC.name, stack)
        flow._say(f"the engine said {KEY}")
    assert (tmp_path / "logs" / "HND.connector.1.1.log").read_text().count("(redacted)") == 2
    assert KEY not in screen.getvalue()
