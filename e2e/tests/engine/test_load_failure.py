"""An object that rots in the pool: never served, reported under both of vLLM's policies, in every way of loading."""

from __future__ import annotations

from pathlib import Path

import pytest

from e2e.base.connector import ConnectorConfig
from e2e.base.errors import EngineAnswer
from e2e.tests.engine.engines import ask, prompts

pytestmark = [pytest.mark.engine, pytest.mark.timeout(900)]
WAYS = [
    {"storage_format": storage, "load": load, "overlap": overlap}
    for storage in ("chunkwise", "layerwise")
    for load, overlap in (("sync", False), ("async", False), ("async", True))
]


def _rot(region: Path) -> None:
    """Flips one byte in every 64 KiB, so that every object of the pool is torn."""
    with region.open("r+b") as file:
        for at in range(4096, region.stat().st_size, 1 << 16):
            file.seek(at)
            byte = file.read(1)
            file.seek(at)
            file.write(bytes([byte[0] ^ 0xFF]))


@pytest.mark.parametrize("policy", ["recompute", "fail"])
def test_a_torn_object_is_never_served(engine, tmp_path, policy) -> None:
    connector = ConnectorConfig(
        kv_connector="EmbeddedConnector", module_path="e2e.inside.connector", load_failure_policy=policy,
        extra={"embedded_pool_dir": str(tmp_path / "pool"), "maru_pool_size": "128M"},
    )  # fmt: skip
    (asked,) = prompts([1033])
    with engine(connector=connector) as client:
        for number, way in enumerate(WAYS):
            salt = f"way {number}"
            cold = ask(client, asked, salt=salt, params=way, max_tokens=4)
            assert cold.cached_tokens == 0
            _rot(tmp_path / "pool" / "region")
            assert client.reset_prefix_cache()[0]
            if policy == "fail":
                with pytest.raises(EngineAnswer):
                    ask(client, asked, salt=salt, params=way, max_tokens=4)
            else:
                again = ask(client, asked, salt=salt, params=way, max_tokens=4)
                assert again.token_ids == cold.token_ids
            (evidence,) = client.collective_rpc("rig_evidence", 0)
            assert evidence["counters"]["load_failures"] == number + 1
            assert client.reset_prefix_cache(external=True)[0]


def test_what_was_read_of_a_failed_load_is_told_as_such(engine, tmp_path) -> None:
    """The step that read garbage is told as one that the connector took back; what it then kept is read again."""
    connector = ConnectorConfig(
        kv_connector="EmbeddedConnector", module_path="e2e.inside.connector", load_failure_policy="recompute",
        extra={"embedded_pool_dir": str(tmp_path / "pool"), "maru_pool_size": "128M"},
    )  # fmt: skip
    (asked,) = prompts([1033])
    with engine(connector=connector) as client:
        assert client.collective_rpc("rig_probe", True)[0]["on"]
        ask(client, asked, params=WAYS[0], max_tokens=4)
        _rot(tmp_path / "pool" / "region")
        assert client.reset_prefix_cache()[0]
        ask(client, asked, params=WAYS[0], max_tokens=4)
        rows = client.collective_rpc("rig_digests", 0)[0]["rows"]
    assert [(row["when"], row["nth"], row["failed"]) for row in rows] == [("computed", 1, False), ("read", 1, True)]
    assert rows[1]["tokens"] == 1024
