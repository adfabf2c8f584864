"""What vLLM decided at run time, read where it is true: in the worker, off the layers themselves."""

from __future__ import annotations

import sys
from collections.abc import Mapping

import torch
import vllm

from e2e.inside.geometry import PagedLayer


def attention_backend(vllm_config, layer_name: str) -> tuple[str, str]:
    """(name, dotted class) of the backend of one attention layer. vLLM's flags say what was asked for; this is what
    was taken: an unknown CPU backend, say, falls back without an error."""
    layer = vllm_config.compilation_config.static_forward_context[layer_name]
    cls = layer.get_attn_backend() if hasattr(layer, "get_attn_backend") else layer.attn_backend
    return getattr(cls, "rig_name", cls.get_name()), f"{cls.__module__}.{cls.__qualname__}"


def batch_invariant(device: torch.device) -> bool | None:
    """Does this worker compute a row to the same bits in whatever batch it stands? vLLM's switch is also thrown on a
    CPU, where nothing follows from it. None where a version of vLLM keeps it somewhere else."""
    if device.type != "cuda":
        return False
    names = (f"vllm.model_executor.{room}.batch_invariant" for room in ("determinism", "layers"))
    thrown = (getattr(sys.modules.get(name), "_batch_invariant_MODE", None) for name in names)
    return next((bool(on) for on in thrown if on is not None), None)


def resolve_layers(vllm_config, kv_caches: Mapping[str, torch.Tensor], *, block_size: int) -> dict[str, PagedLayer]:
    """The paged tensor of each layer as PagedLayer. ValueError for a geometry that is not known."""
    model, parallel = vllm_config.model_config, vllm_config.parallel_config
    return {
        name: PagedLayer.resolve(
            tensor,
            num_kv_heads=model.get_num_kv_heads(parallel),
            head_size=model.get_head_size(),
            block_size=block_size,
            vllm_version=vllm.__version__,
            backend=attention_backend(vllm_config, name)[0],
        )
        for name, tensor in kv_caches.items()
    }


def registered_kv_caches(vllm_config) -> dict[str, torch.Tensor]:
    """Layer name -> KV tensor of every attention layer, as the model's forward will read it."""
    found = {}
    for name, layer in vllm_config.compilation_config.static_forward_context.items():
        tensor = getattr(layer, "kv_cache", None)
        if isinstance(tensor, list):  # up to 0.17 or so: one entry per virtual engine
            tensor = tensor[0] if tensor else None
        if isinstance(tensor, torch.Tensor) and tensor.dim() >= 3:
            found[name] = tensor
    return found
