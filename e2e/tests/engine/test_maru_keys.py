"""Maru's own keys as an engine's defaults, without anything per request: what a real Maru is given, on the double."""

from __future__ import annotations

import json

import pytest

pytestmark = [pytest.mark.engine, pytest.mark.long, pytest.mark.timeout(1200)]

TOML = """
[connector]
name = "maru-keys"
class = "EmbeddedConnector"
module_path = "e2e.inside.connector"
granularity = 256
[connector.extra]
embedded_pool_dir = "{{pool_dir}}"
maru_pool_size = "1G"
maru_kv_chunk_tokens = 256
{keys}
"""
WHOLE = ("maru_async_load = true",)
OVERLAP = ("maru_use_layerwise = true", "maru_async_load = true", "maru_overlap_load_with_compute = true")


@pytest.mark.parametrize(("layout", "keys"), [("HND", WHOLE), ("NHD", OVERLAP)])
def test_engine_defaults_by_marus_keys_pass(rig, tmp_path, layout, keys):
    connector = tmp_path / "maru.toml"
    connector.write_text(TOML.format(keys="\n".join(keys)))
    ran = rig("--connector", str(connector), "--cell", f"layout={layout}", out=tmp_path / "run")
    assert ran.code == 0, ran.said
    (cell,) = ran.cells.values()
    assert cell["verdict"] == "pass"
    assert cell["hits"]["engine"] == cell["hits"]["predicted"] > 0
    (started,) = [event["argv"] for event in ran.events("engine.start") if event["role"] == "connector"]
    given = json.loads(started[started.index("--kv-transfer-config") + 1])["kv_connector_extra_config"]
    assert {key.split(" = ")[0] for key in keys} <= given.keys()
    # the worker's own journal says that the keys were heeded, though this adapter claims no counters
    loads = [load for event in ran.events("connector.evidence") for load in event["loads"]]
    expected = {"layerwise" if "maru_use_layerwise = true" in keys else "chunkwise"}
    assert {load["storage_format"] for load in loads} == expected
    assert {load["load"] for load in loads} == {"async" if "maru_async_load = true" in keys else "sync"}


def test_a_key_that_maru_would_ignore_silently_is_refused_by_the_double(rig, tmp_path):
    connector = tmp_path / "maru.toml"
    connector.write_text(TOML.format(keys="maru_async_laod = true"))
    ran = rig("--connector", str(connector), "--cell", "layout=HND", out=tmp_path / "run")
    assert ran.code == 4, ran.said
    assert "did you mean maru_async_load" in ran.said
