"""What an engine is: one frozen spec, turned into one command line and one environment for every launcher."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from e2e.base.connector import ConnectorConfig
from e2e.stack.cores import usable_cores

#: Name under which every engine serves its model, whatever folder or hub id it came from.
SERVED_MODEL = "model"
EXTENSION = "e2e.inside.extension.RigExtension"
PLUGIN = "maru_e2e"

#: Of a GPU's memory what engines take together, as vLLM alone does by default.
GPU_SHARE = 0.9
#: Never inherited: the first overrides --kv-cache-memory-bytes, and an empty one crashes vLLM; the second makes newer
#: vLLM refuse transfers and older ones corrupt them; the others are ours to set.
UNSET = ("VLLM_CPU_KVCACHE_SPACE", "PYTORCH_CUDA_ALLOC_CONF", "VLLM_KV_CACHE_LAYOUT", "MARU_E2E_ATTENTION")


@dataclass(frozen=True, kw_only=True)
class EngineSpec:
    """One engine. ``None`` leaves vLLM's default; lengths in tokens, memory in bytes.

    ``name``: one engine start, unique in a recording. ``role``: the name of its site. ``cell``: whose alone it is.
    ``beside``: how many engines share the device, or the cores, it among them. ``attention``: "strided" is the rig's
    own CPU backend, "stock" or None what vLLM picks, anything else a value of ``--attention-backend``. ``adapters``:
    name -> folder of each LoRA adapter. ``env`` is set last and wins.
    """

    name: str
    engine_key: str
    role: str
    model: str
    cell: str | None = None
    device: str = "cpu"
    layout: str | None = None
    block_size: int | None = None
    dtype: str | None = None
    kv_cache_dtype: str | None = None
    max_num_batched_tokens: int | None = None
    max_model_len: int | None = None
    kv_cache_memory_bytes: int | None = None
    tensor_parallel: int = 1
    beside: int = 1
    attention: str | None = None
    connector: ConnectorConfig | None = None
    adapters: Mapping[str, str] = field(default_factory=dict)
    extra_args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.device not in ("cpu", "cuda"):
            raise ValueError(f"device {self.device!r} is neither cpu nor cuda")

    def argv(self, port: int, *, python: str = "python", host: str = "127.0.0.1") -> list[str]:
        """The whole command. ``vllm serve`` is no choice: the CPU distribution's command fails on its own version."""
        flags = {
            "--host": host,
            "--port": port,
            "--model": os.path.abspath(self.model) if Path(self.model).is_dir() else self.model,
            "--served-model-name": SERVED_MODEL,
            "--seed": 0,
            # the model's own sampling defaults (a repetition penalty, say) have no place in a comparison
            "--generation-config": "vllm",
            "--worker-extension-cls": EXTENSION,
            "--block-size": self.block_size,
            "--dtype": self.dtype,
            "--kv-cache-dtype": self.kv_cache_dtype,
            "--max-num-batched-tokens": self.max_num_batched_tokens,
            "--max-model-len": self.max_model_len,
            "--kv-cache-memory-bytes": self.kv_cache_memory_bytes,
            "--gpu-memory-utilization": self._gpu_share(),
            "--tensor-parallel-size": self.tensor_parallel,
            "--attention-backend": None if self.attention in (None, "stock", "strided") else self.attention,
            "--kv-transfer-config": self._kv_transfer_config(),
        }
        argv = [python, "-m", "vllm.entrypoints.openai.api_server"]
        for flag, value in flags.items():
            if value is not None:
                argv += [flag, str(value)]
        argv += ["--enforce-eager", "--enable-prefix-caching", "--enable-prompt-tokens-details"]
        # a connector may not change how KV is grouped compared with the baseline engine
        argv += ["--disable-hybrid-kv-cache-manager", "--disable-uvicorn-access-log"]
        if self.device == "cuda":  # always off on a CPU; an answer must come from the same steps in every arm
            argv.append("--no-async-scheduling")
        argv += self._lora()
        return [*argv, *(self.connector.engine_args if self.connector else ()), *self.extra_args]

    def _lora(self) -> list[str]:
        """All adapters fit at once, so that none is loaded anew for each answer."""
        if not self.adapters:
            return []
        modules = [f"{name}={os.path.abspath(folder)}" for name, folder in self.adapters.items()]
        return ["--enable-lora", "--max-loras", str(len(modules)), "--max-lora-rank", "8", "--lora-modules", *modules]

    def _gpu_share(self) -> float | None:
        """Of the memory that vLLM wants to see free when it starts. What the KV cache takes is given in bytes."""
        return round(GPU_SHARE / self.beside, 4) if self.device == "cuda" and self.beside > 1 else None

    def _kv_transfer_config(self) -> str | None:
        return json.dumps(self.connector.as_kv_transfer_config(), sort_keys=True) if self.connector else None

    def settings_env(self) -> dict[str, str]:
        """The variables that this spec itself sets, before PYTHONPATH is joined with what is there."""
        env = {"VLLM_SERVER_DEV_MODE": "1", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1"}
        if self.layout is not None:
            env["VLLM_KV_CACHE_LAYOUT"] = self.layout
        if self.attention == "strided":
            env["MARU_E2E_ATTENTION"] = "strided"
        if Path(self.model).is_dir():
            env["HF_HUB_OFFLINE"] = "1"
        if self.device == "cpu":
            # saves 1.5 s on the first request with logprobs
            env["TORCHDYNAMO_DISABLE"] = "1"
            # vLLM keeps cores free, one more for a connector, and another number of threads sums in another order: the
            # baseline engine would differ in the last bits. Both compute on all cores, since what vLLM keeps them free
            # for idles meanwhile. Not bound to cores: vLLM binds from core 0 on, where a second engine starves.
            env["VLLM_CPU_OMP_THREADS_BIND"] = "nobind"
            env["OMP_NUM_THREADS"] = str(max(usable_cores() // self.beside, 1))
            # a thread that spins for the others takes the core that they need: on a busy machine with two cores a
            # decode step took 20 times as long (0.5 s, not 0.02 s)
            env["OMP_WAIT_POLICY"] = "passive"
        if self.connector:
            env.update(self.connector.env)
        env.update(self.env)
        return env

    def environment(self, base: Mapping[str, str]) -> dict[str, str]:
        """``base`` (the rig's environment) without what would leak into the engine, plus what the spec sets."""
        env = {key: value for key, value in base.items() if key not in UNSET}
        own = self.settings_env()
        paths = [path for each in (own, env) for path in each.get("PYTHONPATH", "").split(os.pathsep) if path]
        if paths:
            # absolute: an engine runs in a folder of its own
            own["PYTHONPATH"] = os.pathsep.join(map(os.path.abspath, paths))
        allowed = env.get("VLLM_PLUGINS")
        if allowed is not None and PLUGIN not in allowed.split(","):
            own.setdefault("VLLM_PLUGINS", ",".join(filter(None, (allowed, PLUGIN))))
        env.update(own)
        return env
