"""The probe on a real engine, around a connector that nobody here wrote."""

from __future__ import annotations

import uuid
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from e2e.base.connector import ConnectorConfig
from e2e.base.event import Event
from e2e.judge.classify import classify
from e2e.judge.kv import Digest, Sample
from e2e.observe.digests import DigestWindow
from e2e.tests.engine.engines import ask, prompts
from e2e.tests.engine.tiny import tiny_model

pytestmark = pytest.mark.engine


class Seen:
    """Digests and samples as they would stand in the recording."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.values: dict[str, str] = {}

    def record(self, kind: str, **data: object) -> Event:
        self.events.append(Event(kind, data))
        if data.get("values") is not None:
            self.values[data["content"]] = data["values"]
        return self.events[-1]

    def of(self, arm: str, kind: str = "digest.taken") -> list[dict]:
        return [dict(event.data) for event in self.events if event.kind == kind and event.data["arm"] == arm]

    def digest(self, arm: str) -> Digest:
        (data,) = self.of(arm)
        return Digest.of({**data, "values": self.values[data["content"]], "prompt": 0, "sample": None})


def test_digests_around_vllms_own_connector(engine, tmp_path):
    """Equal for an honest load; one planted bit changes one page, whose sample shows the bit; off means off."""
    (ids,) = prompts([500])
    connector = ConnectorConfig("ExampleConnector", extra={"shared_storage_path": str(tmp_path / "store")})
    seen, salt = Seen(), uuid.uuid4().hex
    with engine(connector=connector) as client:
        window = DigestWindow(client.collective_rpc, seen.record, engine="test")
        ask(client, ids[:40], salt="off")
        assert window.start()
        with window.arm(cell="c", arm="cold"):
            cold = ask(client, ids, salt=salt)
        for arm, plant in (("external", None), ("external_again", "bit_flip")):
            assert client.reset_prefix_cache()[0]
            assert client.collective_rpc("rig_overwrite_free_blocks", 7)[0]["blocks"]
            with window.arm(cell="c", arm=arm, plant=plant):
                answer = ask(client, ids, salt=salt)
            assert answer.cached_tokens == 496
        assert "error" in client.collective_rpc("rig_plant", "nothing of the kind")[0]
        assert client.collective_rpc("rig_probe", False)[0] == {"on": False}
        ask(client, ids, salt="off")
        assert client.collective_rpc("rig_digests", 0)[0]["rows"] == []
    assert len(cold.token_ids) == 16
    computed, honest, flipped = (seen.digest(arm) for arm in ("cold", "external", "external_again"))
    assert (computed.when, computed.tokens, computed.values.shape[3]) == ("computed", 500, 31)
    assert (honest.when, honest.tokens, honest.missing_layers) == ("read", 496, ())
    assert np.array_equal(computed.values, honest.values)
    assert seen.of("external")[0]["values"] is None
    assert len(np.unique(computed.values)) == computed.values.size
    assert np.argwhere(computed.values != flipped.values)[:, :3].tolist() == [[15, 1, 1]]
    assert [(fired["fault"], fired["count"]) for fired in seen.of("external_again", "fault.fired")] == [("bit_flip", 1)]
    (sample,) = seen.of("external_again", "digest.sample")
    pattern = classify(computed.values, flipped.values, block_size=16, sample=Sample.of(sample))
    assert (pattern.name, pattern.details) == ("bit_flips", {"flips": 1, "elements": 1})


def test_a_preempted_request_reads_again_and_every_read_is_told(engine, tmp_path):
    """Three loaded requests whose answers outgrow the cache: each read is told, and is what the cold run computed."""
    asked = prompts([513, 513, 513])
    connector = ConnectorConfig(
        "EmbeddedConnector", module_path="e2e.inside.connector",
        extra={"embedded_pool_dir": str(tmp_path / "pool"), "maru_pool_size": "128M"},
    )  # fmt: skip
    seen, small = Seen(), {"model": tiny_model(), "max_model_len": 1024, "kv_cache_memory_bytes": 1600 * 4096}
    with engine(connector=connector, **small) as client, ThreadPoolExecutor(len(asked)) as at_once:
        window = DigestWindow(client.collective_rpc, seen.record, engine="test")
        assert window.start()
        for prompt in asked:
            with window.arm(cell="c", arm="cold"):
                ask(client, prompt, max_tokens=1)
        assert client.reset_prefix_cache()[0]
        with window.arm(cell="c", arm="external"):
            list(at_once.map(lambda prompt: ask(client, prompt, max_tokens=250), asked))
    computed = [Digest.of({**row, "values": seen.values[row["content"]], "prompt": 0}) for row in seen.of("cold")]
    reads = [Digest.of({**row, "values": seen.values[row["content"]], "prompt": 0}) for row in seen.of("external")]
    most = max(read.of_reads for read in reads)
    assert most > 1, "nothing was preempted"
    by_request = {read.request: [r.nth for r in reads if r.request == read.request] for read in reads}
    assert len(by_request) == len(asked)
    for read in reads:
        assert by_request[read.request] == list(range(1, read.of_reads + 1))
        assert any(
            np.array_equal(cold.values[..., :n], read.values[..., :n])
            for cold in computed
            for n in [min(cold.values.shape[3], read.values.shape[3])]
        )
