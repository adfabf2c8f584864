from __future__ import annotations

import json
import os

import pytest

from e2e.base.connector import ConnectorConfig
from e2e.stack.spec import EngineSpec

CONNECTOR = ConnectorConfig(
    "Ours",
    module_path="ours.connector",
    extra={"maru_kv_chunk_tokens": 256},
    engine_args=("--kv-events-config", "{}"),
    env={"PYTHONPATH": "/ours", "OURS": "1"},
)


def spec(**settings) -> EngineSpec:
    return EngineSpec(
        **{"name": "NHD.baseline.1", "engine_key": "NHD", "role": "baseline", "model": "org/name"} | settings
    )


def value_of(argv: list[str], flag: str) -> str:
    return argv[argv.index(flag) + 1]


def test_what_is_not_set_is_left_to_vllm():
    argv = spec().argv(8123, python="py")
    assert argv[:3] == ["py", "-m", "vllm.entrypoints.openai.api_server"]
    assert value_of(argv, "--port") == "8123"
    assert value_of(argv, "--host") == "127.0.0.1"
    for flag in ("--block-size", "--dtype", "--max-model-len", "--attention-backend", "--kv-transfer-config"):
        assert flag not in argv
    assert all(isinstance(word, str) for word in argv)


def test_settings_become_flags():
    argv = spec(block_size=16, dtype="float32", max_num_batched_tokens=512, kv_cache_memory_bytes=1 << 28).argv(1)
    assert value_of(argv, "--block-size") == "16"
    assert value_of(argv, "--dtype") == "float32"
    assert value_of(argv, "--max-num-batched-tokens") == "512"
    assert value_of(argv, "--kv-cache-memory-bytes") == str(1 << 28)


def test_both_roles_get_the_same_flags_but_the_connectors_own():
    baseline = spec().argv(1)
    connector = spec(role="connector", connector=CONNECTOR).argv(1)
    at = connector.index("--kv-transfer-config")
    assert json.loads(connector[at + 1]) == CONNECTOR.as_kv_transfer_config()
    rest = connector[:at] + connector[at + 2 :]
    assert [word for word in rest if word not in CONNECTOR.engine_args] == baseline


def test_engines_side_by_side_part_a_gpus_memory_or_the_cores(monkeypatch):
    monkeypatch.setattr("e2e.stack.spec.usable_cores", lambda: 8)
    assert "--gpu-memory-utilization" not in spec(device="cuda").argv(1)
    assert "--gpu-memory-utilization" not in spec(beside=4).argv(1)
    assert value_of(spec(device="cuda", beside=4).argv(1), "--gpu-memory-utilization") == "0.225"
    threads = [spec(beside=beside).settings_env()["OMP_NUM_THREADS"] for beside in (1, 3, 16)]
    assert threads == ["8", "2", "1"]


@pytest.mark.parametrize(
    ("attention", "flag", "env"),
    [(None, None, None), ("stock", None, None), ("strided", None, "strided"), ("FLASHINFER", "FLASHINFER", None)],
)
def test_attention(attention, flag, env):
    one = spec(attention=attention)
    argv = one.argv(1)
    assert (value_of(argv, "--attention-backend") if "--attention-backend" in argv else None) == flag
    assert one.environment({"MARU_E2E_ATTENTION": "leaked"}).get("MARU_E2E_ATTENTION") == env


def test_environment_lets_nothing_leak_that_would_change_the_engine():
    base = {"VLLM_CPU_KVCACHE_SPACE": "", "PYTORCH_CUDA_ALLOC_CONF": "x", "VLLM_KV_CACHE_LAYOUT": "NHD", "PATH": "/bin"}
    env = spec().environment(base)
    assert env["PATH"] == "/bin"
    assert not env.keys() & (base.keys() - {"PATH"})
    assert spec(layout="HND").environment(base)["VLLM_KV_CACHE_LAYOUT"] == "HND"


def test_pythonpath_is_put_in_front():
    one = spec(role="connector", connector=CONNECTOR)
    assert one.environment({"PYTHONPATH": "/theirs"})["PYTHONPATH"] == os.pathsep.join(("/ours", "/theirs"))
    assert one.environment({})["PYTHONPATH"] == "/ours"
    assert one.environment({})["OURS"] == "1"


def test_relative_pythonpath_survives_a_change_of_folder():
    paths = spec().environment({"PYTHONPATH": os.pathsep.join(("plugins", "/abs"))})["PYTHONPATH"].split(os.pathsep)
    assert paths == [os.path.abspath("plugins"), "/abs"]


def test_an_allow_list_of_plugins_lets_ours_in():
    assert spec().environment({"VLLM_PLUGINS": "theirs"})["VLLM_PLUGINS"] == "theirs,maru_e2e"
    assert "VLLM_PLUGINS" not in spec().environment({})


def test_a_folder_needs_no_hub(tmp_path):
    assert spec(model=str(tmp_path)).environment({})["HF_HUB_OFFLINE"] == "1"
    assert "HF_HUB_OFFLINE" not in spec().environment({})


def test_a_device_that_there_is_not_is_refused():
    with pytest.raises(ValueError, match="neither"):
        spec(device="tpu")


def test_adapters_fit_at_once_and_are_named():
    argv = spec(adapters={"lora-1": "a", "lora-2": "/b"}).argv(1)
    assert value_of(argv, "--max-loras") == "2"
    at = argv.index("--lora-modules")
    assert argv[at + 1 : at + 3] == [f"lora-1={os.path.abspath('a')}", "lora-2=/b"]
    assert "--enable-lora" in argv
    assert "--enable-lora" not in spec().argv(1)
