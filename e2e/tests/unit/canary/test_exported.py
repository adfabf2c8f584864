"""What Prometheus reads: both formats, exemplars that name the probe, and a pulse."""

from __future__ import annotations

import time
from contextlib import closing
from types import SimpleNamespace

import pytest
import requests
from played import Recorded, Said
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families as plain

from e2e.base.errors import SettingsError
from e2e.canary import stories
from e2e.canary.budget import Share
from e2e.canary.exported import STALE_S, Exported, served
from e2e.canary.memory import AGES, PUT_S, Memory
from e2e.canary.prober import Outcome, fresh
from e2e.canary.segments import Segments
from e2e.canary.stories import Units
from e2e.judge import in_use
from e2e.judge.cells import judge_cell

CROSS = stories.cross("a", "b", 265, Units())


def outcome(**more: Said) -> Outcome:
    recorded = Recorded()
    said = {"cold": Said(text=("314", "159")), "local": Said(cached=256), "external": Said(cached=256), **more}
    recorded.cell("p", CROSS, said, arithmetic="a")
    cell = judge_cell(recorded.events, "p")
    reason = cell.reason.name.lower() if cell.reason else "none"
    return Outcome("segment/p", "p", cell.verdict.value, reason, cell, in_use.seen(recorded.events, "p"), "314159")


@pytest.fixture
def exported():
    targets = [SimpleNamespace(name=name, spent=900, stored=265, share=Share(0.1)) for name in ("a", "b")]
    exported = Exported(targets, token_bytes=4096, store=1 << 30)
    exported.settled(fresh("cross", CROSS, 265), outcome(), 256)
    for target in targets:
        exported.paid(target)
        exported.paid(target)
    return exported


def read(port: int, path: str, **headers: str) -> requests.Response:
    session = requests.Session()
    session.trust_env = False
    return session.get(f"http://127.0.0.1:{port}/{path}", headers=headers, timeout=10)


def test_both_formats_are_read_by_their_parsers_and_exemplars_name_the_probe(exported):
    with served(exported, "127.0.0.1", 0) as port:
        text = read(port, "metrics").text
        opened = read(port, "metrics", Accept="application/openmetrics-text; version=1.0.0").text
    samples = {
        (s.name, *dict(sorted(s.labels.items())).values()): s.value for family in plain(text) for s in family.samples
    }
    assert samples["maru_canary_probes_total", "none", "cross", "b", "pass"] == 1
    assert samples["maru_canary_loads_total", "exact", "b"] == 1
    assert samples["maru_canary_corrupt_total", "b"] == 0, "there before anything happens, or no alert sees it rise"
    assert samples["maru_canary_tokens_total", "a"] == 900, "what was paid is counted once"
    assert samples["maru_canary_stored_bytes_total", "a"] == 265 * 4096
    assert samples["maru_canary_ttft_seconds_count", "external", "b"] == 1
    assert samples["maru_canary_secrets_total", "cold", "a", "true"] == 1
    exemplars = {
        s.exemplar.labels["probe"] for family in openmetrics(opened) for s in family.samples if s.exemplar is not None
    }
    assert exemplars == {"segment/p"}


def test_a_wrong_load_is_counted_where_it_was_loaded(exported):
    exported.settled(fresh("cross", CROSS, 265), outcome(external=Said(cached=256, shift=1e-6)), 256)
    with served(exported, "127.0.0.1", 0) as port:
        text = read(port, "metrics").text
    samples = {
        (s.name, *dict(sorted(s.labels.items())).values()): s.value for family in plain(text) for s in family.samples
    }
    assert (samples["maru_canary_corrupt_total", "b"], samples["maru_canary_corrupt_total", "a"]) == (1, 0)


def test_its_pulse(exported):
    with served(exported, "127.0.0.1", 0) as port:
        assert read(port, "healthz").status_code == 200
        exported.turned_s = time.monotonic() - STALE_S - 1
        assert read(port, "healthz").status_code == 503
        exported.turned()
        assert read(port, "healthz").status_code == 200
        assert read(port, "elsewhere").status_code == 404
        with pytest.raises(SettingsError, match=f"127.0.0.1:{port} can't be had"), served(exported, "127.0.0.1", port):
            pass


def test_what_is_covered(exported, tmp_path):
    memory = Memory(Units())
    begin = {"command": [], "versions": {}, "machine": {}, "settings": {}, "wall_time": ""}
    now = time.time()
    with closing(Segments(tmp_path, keeps=1 << 20, begin=lambda: begin)) as kept:
        for story, sites, age in (("cross", ["a", "b"], None), ("later", ["b"], AGES[1])):
            memory.took(
                kept.record(
                    "canary.probe", cell=None, story=story, sites=sites, tokens=300, stored=257, verdict="pass",
                    reason="none", saw="exact", noise={}, served=256, nonce="n", salt="s", told="1", wall_s=now,
                    spent={}, age_s=age, of="n" if age else None, put=300,
                )
            )  # fmt: skip
    targets = [SimpleNamespace(name=name, share=Share(0.1)) for name in ("a", "b")]
    exported.standing(memory, targets, now)
    seen = {
        tuple(s.labels.values()): s.value
        for family in exported.registry.collect()
        for s in family.samples
        if s.name == "maru_canary_covered"
    }
    assert exported.registry.get_sample_value("maru_canary_store_share") == 600 * 4096 / (1 << 30)
    exported.standing(memory, targets, now + PUT_S + 1)
    assert exported.registry.get_sample_value("maru_canary_store_share") == 0, "an hour later"
    assert seen["b", "external_exact"] == seen["b", f"after_{AGES[1]:.0f}s"] == 1
    assert seen["a", "external"] == seen["b", "local"] == seen["b", f"after_{AGES[2]:.0f}s"] == 0
