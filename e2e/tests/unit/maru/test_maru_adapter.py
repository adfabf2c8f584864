"""A cell becomes exactly Maru's keys; what the installed Maru would ignore or refuse is said, never silent."""

import pytest

from e2e.base.cell import Cell
from e2e.connectors.installed import Installed
from e2e.connectors.maru.adapter import Maru
from e2e.connectors.maru.build import Build, read_build
from e2e.connectors.maru.servers import OnDaxFolder, probe_maru

CURRENT = frozenset(
    {"maru_server_url", "maru_pool_size", "maru_instance_id", "maru_kv_chunk_tokens", "maru_use_layerwise",
     "maru_async_load", "maru_overlap_load_with_compute", "maru_overlap_release_after_layers"}
)  # fmt: skip
JULY = frozenset({"maru_server_url", "maru_pool_size", "maru_chunk_size", "maru_instance_id", "maru_kv_chunk_tokens"})


def build(keys=CURRENT, **more):
    return Build(version="0.1.0", commit="01d81a4", source="0" * 16, keys=keys, kernels=False, **more)


def cell(**settings):
    usual = {"layout": "NHD", "storage_format": "chunkwise", "overlap": "off", "load": "sync", "chunk_tokens": 256}
    return Cell({**usual, **settings})


def config(adapter, of, pool_dir="/pool"):
    return adapter.config(of, pool_dir=pool_dir, block_size=16)


def test_keys_are_exactly_those_of_the_cell():
    overlapped = cell(storage_format="layerwise", overlap="on", load="async", release_after_layers=4)
    assert config(Maru(build=build(), pool_bytes=2 << 30), overlapped).extra == {
        "maru_server_url": "tcp://{maru-server.address}", "maru_pool_size": 2 << 30, "maru_instance_id": "/pool",
        "maru_kv_chunk_tokens": 256, "maru_use_layerwise": True, "maru_async_load": True,
        "maru_overlap_load_with_compute": True, "maru_overlap_release_after_layers": 4,
    }  # fmt: skip
    plain = config(Maru(build=build()), cell())
    assert plain.extra["maru_async_load"] is False
    assert "maru_overlap_release_after_layers" not in plain.extra
    assert (plain.kv_connector, plain.module_path) == ("MaruKVConnector", "maru_vllm")
    assert plain.as_kv_transfer_config()["kv_load_failure_policy"] == "fail"


def test_former_names_are_used_where_only_those_are_read():
    older = build((CURRENT - {"maru_async_load"}) | {"maru_enable_deferred_loading"})
    assert config(Maru(build=older), cell(load="async")).extra["maru_enable_deferred_loading"] is True
    assert "maru_async_load" not in config(Maru(build=older), cell(load="async")).extra


@pytest.mark.parametrize(
    ("keys", "asked", "effective"),
    [
        (CURRENT, {"overlap": "on", "load": "async"}, ("chunkwise", "async", "on")),
        (JULY, {"overlap": "on", "load": "async"}, ("layerwise", "sync", "off")),
        (CURRENT - {"maru_async_load"}, {"overlap": "on", "load": "async"}, ("chunkwise", "sync", "off")),
    ],
)
def test_an_ignored_key_shows_in_what_is_effective(keys, asked, effective):
    found = Maru(build=build(keys)).effective(cell(**asked))
    assert (found["storage_format"], found["load"], found["overlap"]) == effective


def test_july_is_not_sent_a_prompt_that_kills_the_engine():
    july = Maru(build=build(JULY))
    assert "whole chunks" in july.refuses(cell(), 512)
    assert july.refuses(cell(), 513) is None
    assert Maru(build=build()).refuses(cell(), 512) is None


def test_overlap_of_layerwise_objects_is_refused_by_the_line_that_turns_it_off():
    line = Maru(build=build(overlap_kernel=True))
    assert "turns overlap off" in line.check(cell(storage_format="layerwise", overlap="on", load="async"))
    assert line.check(cell(overlap="on", load="async")) is None


def test_servers_start_in_order_and_the_pool_is_fresh_per_engine():
    manager, server = config(Maru(build=build()), cell(), "/dev/shm/run/a").services
    assert (manager.name, server.name) == ("maru-resource-manager", "maru-server")
    assert manager.within == OnDaxFolder("/dev/shm/run/a/pool.dax")
    assert server.argv[-1] == "{maru-resource-manager.address}"
    assert server.probe is probe_maru
    (given,) = config(Maru(build=build(), server="10.0.0.1:5555"), cell()).services
    assert (given.argv, given.address) == ((), "10.0.0.1:5555")


def test_places_are_filled_in_once_they_are_known():
    placed = config(Maru(build=build()), cell()).placed({"maru-server": "127.0.0.1:4711"})
    assert placed.extra["maru_server_url"] == "tcp://127.0.0.1:4711"
    assert placed.witness.about["address"] == "127.0.0.1:4711"


def test_missing_says_cause_and_cure(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    alone = Maru(build=build(), python=str(tmp_path / "python"))
    assert "MARU_REQUIREMENT" in Maru(build=None).missing(device="cuda")
    assert "scripts/maru with a folder of Maru" in alone.missing(device="cpu")
    assert Maru(build=build(), server="h:1").missing(device="cpu") is None


@pytest.mark.parametrize(
    ("vllm", "attention", "said"),
    [
        ("0.22.1", None, None),
        ("0.23.0", "FLASH_ATTN", "loads nothing useful here on vLLM 0.23"),
        ("0.25.1", "TRITON_ATTN", "loads nothing useful here on vLLM 0.25"),
        ("0.22.1", "TRITON_ATTN", "loads nothing useful here on vLLM 0.22"),
        ("0.26.0", None, "use --attention TRITON_ATTN"),
        ("0.26.0", "FLASHINFER", "use --attention TRITON_ATTN"),
        ("0.32.0", "TRITON_ATTN", None),
        ("0.32.0", "strided", None),
    ],
)
def test_what_july_misreads_is_refused_before_engines_start(monkeypatch, vllm, attention, said):
    monkeypatch.setattr("e2e.connectors.maru.adapter.installed", lambda python: Installed((3, 12), vllm=("vllm", vllm)))
    found = Maru(build=build(JULY)).unfit(device="cuda", attention=attention)
    assert (said is None) if found is None else said in found
    assert Maru(build=build()).unfit(device="cuda", attention=attention) is None
    hnd = Maru(build=build(JULY)).check(cell(layout="HND"))
    assert ("loads nothing with HND" in str(hnd)) is (vllm == "0.22.1")


def test_servers_beside_the_engines_python_need_no_path(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    for name in ("maru-server", "maru-resource-manager"):
        (tmp_path / name).touch(mode=0o755)
    adapter = Maru(build=build(), python=str(tmp_path / "python"))
    assert adapter.missing(device="cpu") is None
    started = [service.argv[0] for service in config(adapter, cell()).services]
    assert started == [str(tmp_path / "maru-resource-manager"), str(tmp_path / "maru-server")]


def test_chunks_are_rounded_down_to_blocks():
    assert Maru(build=build()).hit_rule(cell(chunk_tokens=300), block_size=16).granularity == 288
    assert Maru(build=build()).hit_rule(cell(chunk_tokens=8), block_size=16).granularity == 16


def test_build_is_read_from_text(tmp_path):
    (tmp_path / "connector.py").write_text(
        'import torch_is_never_imported\nx = extra.get("maru_pool_size", 1)\ny = extra["maru_use_layerwise"]\n'
    )
    found = read_build(tmp_path, kernels=True)
    assert found.keys == {"maru_pool_size", "maru_use_layerwise"}
    assert (found.july, found.kernels, found.version) == (False, True, "unknown")
    (tmp_path / "connector.py").write_text('x = extra.get("maru_pool_size", 1)')
    again = read_build(tmp_path, kernels=False)
    assert again.july
    assert again.source != found.source
