"""Worker extension (``--worker-extension-cls``): what the rig asks the worker through POST /collective_rpc.

Every method takes and gives JSON values. The class is mixed into vLLM's worker, so names start with ``rig_``.
"""

from __future__ import annotations

import platform
from collections.abc import Callable
from importlib import metadata

import torch
import vllm

from e2e.base.fault import parted
from e2e.inside import copying, faults, runtime
from e2e.inside.faults.plant import Plant
from e2e.inside.load_errors import LoadErrors
from e2e.inside.probe import Probe, hashing
from e2e.inside.profile import Profile
from e2e.inside.worker_side import layer_number

#: Overwritten blocks get values of this size: finite in every dtype but fp8, and far from any real key or value.
_AMPLITUDE = 100.0
#: Host memory for the KV of cold runs, which samples of wrong pages need, and how many of these between two fetches.
_KEEP_BYTES, _SAMPLES = 256 << 20, 4


def _version_of(module: str) -> str | None:
    """Of the installed package that brings a top-level module, None for a mere file."""
    for package in metadata.packages_distributions().get(module, ()):
        return f"{package} {metadata.version(package)}"
    return None


class RigExtension:
    def rig_info(self) -> dict[str, object]:
        """The effective configuration, read off the registered tensors; see event ``engine.config``."""
        config = self.vllm_config
        caches = runtime.registered_kv_caches(config)
        name, tensor = next(iter(caches.items()))
        backend, attention_class = runtime.attention_backend(config, name)
        info: dict[str, object] = {
            "attention_backend": backend,
            "attention_class": attention_class,
            "shape": list(tensor.shape),
            "stride": list(tensor.stride()),
            "dtype": str(tensor.dtype).removeprefix("torch."),
            "device": str(tensor.device),
            "threads": torch.get_num_threads(),
            "num_layers": len(caches),
            "num_blocks": self._rig_num_blocks(),
            "block_size": config.cache_config.block_size,
            "worker": type(self).__qualname__,
            "runner": f"{type(self.model_runner).__module__}.{type(self.model_runner).__qualname__}",
            "engine_id": getattr(config.kv_transfer_config, "engine_id", None),
            "tensor_parallel": config.parallel_config.tensor_parallel_size,
            "max_num_batched_tokens": config.scheduler_config.max_num_batched_tokens,
            "versions": {
                "vllm": vllm.__version__,
                "torch": str(torch.__version__),
                "python": platform.python_version(),
            },
        }
        if (invariant := runtime.batch_invariant(tensor.device)) is not None:
            info["batch_invariant"] = invariant
        if torch.cuda.is_available():
            info["gpu"] = torch.cuda.get_device_name()
        try:
            layer = runtime.resolve_layers(config, {name: tensor}, block_size=config.cache_config.block_size)[name]
            info |= {"layout": layer.layout, "form": layer.form, "heads": layer.heads, "head_size": layer.head_size}
            info["token_granular"] = layer.token_granular
        except ValueError as error:
            info["geometry_error"] = str(error)
        if (connector := self._rig_connector()) is not None:
            info["connector"] = f"{type(connector).__module__}.{type(connector).__qualname__}"
            info |= getattr(connector, "rig_about", dict)()
            if version := _version_of(type(connector).__module__.partition(".")[0]):
                info["connector_version"] = version
        return info

    def rig_overwrite_free_blocks(self, seed: int) -> dict[str, int]:
        """Fills every block but the null block 0 with large finite random values. Only for an engine at rest whose
        local prefix cache was just reset: then all blocks are free. A load that writes nothing then finds garbage, not
        the right bytes of the run before.
        """
        blocks = self._rig_num_blocks()
        for number, tensor in enumerate(runtime.registered_kv_caches(self.vllm_config).values()):
            view = tensor if tensor.shape[0] != 2 or tensor.dim() != 5 else tensor.transpose(0, 1)
            generator = torch.Generator(device=tensor.device).manual_seed(seed * 1009 + number)
            page = torch.empty(view.shape[1:], dtype=torch.float32, device=tensor.device)
            page.uniform_(-_AMPLITUDE, _AMPLITUDE, generator=generator)
            view[1:] = page.to(tensor.dtype)
        if (probe := self._rig_hooked()) is not None:
            probe.note_blank()
        return {"blocks": blocks - 1, "seed": seed}

    def rig_evidence(self, after: int) -> dict[str, object] | None:
        """What the connector says of itself, and how often it reported a failed load to vLLM. None without one."""
        connector = self._rig_connector()
        if connector is None:
            return None
        ask = getattr(connector, "rig_evidence", None)
        return self._rig_load_errors(connector).told(ask(after) if ask else None)

    def rig_probe(self, on: bool) -> dict[str, object]:
        """Digests on or off. {"error": sentence} where KV can't be read."""
        if (probe := self._rig_hooked()) is not None:
            probe.remove()
            self._rig_probe_of_engine = None
        if not on:
            return {"on": False}
        try:
            probe, hooked = self._rig_hook(_KEEP_BYTES, _SAMPLES)
        except ValueError as error:
            return {"error": str(error)}
        return {"on": True, "hooked": hooked, "hash": hashing.name(self.model_runner.device)}

    def rig_digests(self, after: int) -> dict[str, object]:
        """{"rows": those with an id above ``after``, "fired": {planted fault: times so far}, "cost_s": time spent}."""
        probe = self._rig_hooked()
        rows, cost = ([], 0.0) if probe is None else (probe.rows(after), probe.cost_s)
        return {"rows": rows, "fired": dict(getattr(self, "_rig_fired", {})), "cost_s": cost}

    def rig_profile(self, on: bool) -> dict[str, object]:
        """Starts to count launches, or stops and tells them, see profile.py. Not while requests are timed."""
        return self._rig_profiled(on, Profile.launches)

    def rig_timeline(self, on: bool) -> dict[str, object]:
        """Starts to look at what the device does, or stops and tells it, see profile.py. For one request alone."""
        return self._rig_profiled(on, Profile.timeline)

    def rig_copy(self) -> dict[str, object]:
        """The fastest of a few copies as a load could make them at best: {"bytes", "seconds", "how"}."""
        return copying.fastest(self.model_runner.device)

    def rig_plant(self, fault: str | None) -> dict[str, object]:
        """From now on spoils what any connector has loaded, right before each layer reads it; None: no more. Strikes
        every request that has cached tokens, so plant it for external arms only. {"error": sentence} if it can't."""
        probe = self._rig_hooked()
        fault, only = parted(fault or "")
        if not fault or only not in (None, self.vllm_config.parallel_config.rank):
            if probe is not None:
                probe.plant = None
            return {"planted": None}
        if fault not in faults.AROUND_ANY:
            return {
                "error": f"Fault {fault!r} can't be planted around a connector; use {', '.join(faults.AROUND_ANY)}."
            }
        try:
            if probe is None:
                probe, _ = self._rig_hook(0, 0)
                probe.digests = False
        except ValueError as error:
            return {"error": str(error)}
        if not hasattr(self, "_rig_fired"):
            self._rig_fired = {}
        probe.plant = Plant(faults.get(fault), self._rig_fired, layers=probe.layers)
        return {"planted": fault}

    def _rig_profiled(self, on: bool, tell: Callable[[Profile], dict[str, object]]) -> dict[str, object]:
        running = getattr(self, "_rig_profile_of_engine", None)
        self._rig_profile_of_engine = None
        told = {"on": on} if running is None else tell(running)
        if on:
            self._rig_profile_of_engine = Profile(getattr(self._rig_connector(), "rig_around_placement", None))
        return {"on": True} if on else told

    def _rig_hooked(self) -> Probe | None:
        return getattr(self, "_rig_probe_of_engine", None)

    def _rig_hook(self, keep_bytes: int, samples: int) -> tuple[Probe, list[str]]:
        config = self.vllm_config
        caches = runtime.registered_kv_caches(config)
        layers = runtime.resolve_layers(config, caches, block_size=config.cache_config.block_size)
        ordered = {name: layers[name] for name in sorted(layers, key=layer_number)}
        probe = Probe(ordered, keep_bytes=keep_bytes, samples=samples, rank=config.parallel_config.rank)
        if (connector := self._rig_connector()) is not None:
            self._rig_load_errors(connector)  # below the probe's own hook, which comes and goes
        hooked = probe.install(self.model_runner, connector)
        self._rig_probe_of_engine = probe
        return probe, hooked

    def _rig_load_errors(self, connector) -> LoadErrors:
        if not hasattr(self, "_rig_load_errors_of_engine"):
            self._rig_load_errors_of_engine = LoadErrors(connector)
        return self._rig_load_errors_of_engine

    def _rig_connector(self):
        from vllm.distributed.kv_transfer import get_kv_transfer_group, has_kv_transfer_group

        return get_kv_transfer_group() if has_kv_transfer_group() else None

    def _rig_num_blocks(self) -> int:
        kv_cache_config = getattr(self.model_runner, "kv_cache_config", None)
        return getattr(kv_cache_config, "num_blocks", None) or self.vllm_config.cache_config.num_gpu_blocks
