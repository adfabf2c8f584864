"""From a wrong load to a webhook, through a real Prometheus and a real Alertmanager with the repository's rules."""

from __future__ import annotations

from queue import Empty
from types import SimpleNamespace

import pytest

from e2e.canary.exported import Exported, served
from e2e.tests.unit.canary.watchers import LOGS, MISSING, NEEDED, watched

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(240),
    pytest.mark.skipif(bool(MISSING), reason=f"apt install {' '.join(NEEDED)} for this one"),
]
LIMIT_S = 120.0


def test_the_alert_arrives(tmp_path):
    exported = Exported([SimpleNamespace(name="a"), SimpleNamespace(name="b")])
    exported.turned()
    with served(exported, "127.0.0.1", 0) as port, watched(port, tmp_path, pulse_s=1) as arrived:
        exported.probes.labels("a", "cross", "error", "http_500").inc()
        with pytest.raises(Empty):
            arrived.get(timeout=10)
        exported.corrupt.labels("a").inc(exemplar={"probe": "segment/p"})
        try:
            assert arrived.get(timeout=LIMIT_S) == ("MaruCanaryCorrupt", "a", "firing")
        except Empty:
            pytest.fail("\n".join((tmp_path / name).read_text()[-2000:] for name in LOGS))
