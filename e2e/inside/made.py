"""Other identities of a model, made from a seed: ``python -m e2e.inside.made adapter|weights MODEL TARGET SEED``.

An adapter is in PEFT's form. Both change what the model says from the first token on, and nothing of its shape.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

RANK, ALPHA = 8, 16
PROJECTIONS = ("q_proj", "k_proj", "v_proj", "o_proj")
#: Standard deviation of an adapter's outputs, and of the noise over weights in terms of their own.
_REACH, _NOISE = 0.2, 0.3


def adapter(model: Path, target: Path, seed: int) -> None:
    """A LoRA adapter of every attention projection."""
    random = torch.Generator().manual_seed(seed)
    weights = {}
    for name, (out, into) in _projections(model):
        prefix = f"base_model.model.{name.removesuffix('.weight')}"
        weights[f"{prefix}.lora_A.weight"] = torch.randn(RANK, into, generator=random) / into**0.5
        weights[f"{prefix}.lora_B.weight"] = torch.randn(out, RANK, generator=random) * _REACH
    if not weights:
        raise SystemExit(f"{model} has no {', '.join(PROJECTIONS)} that an adapter could be made for")
    config = {
        "peft_type": "LORA", "task_type": "CAUSAL_LM", "r": RANK, "lora_alpha": ALPHA, "bias": "none",
        "target_modules": list(PROJECTIONS), "base_model_name_or_path": model.name,
    }  # fmt: skip
    save_file(weights, target / "adapter_model.safetensors")
    (target / "adapter_config.json").write_text(json.dumps(config, indent=1))


def _projections(model: Path) -> Iterator[tuple[str, tuple[int, int]]]:
    """Name and [out, in] of each."""
    for path in sorted(model.glob("*.safetensors")):
        with safe_open(path, "pt") as file:
            for name in file.keys():  # noqa: SIM118  (it is no mapping)
                if name.endswith(tuple(f"{each}.weight" for each in PROJECTIONS)):
                    yield name, tuple(file.get_slice(name).get_shape())


def weights(model: Path, target: Path, seed: int) -> None:
    """The same model with noise over its matrices."""
    random = torch.Generator().manual_seed(seed)
    for path in (path for path in sorted(model.iterdir()) if path.is_file()):
        if path.suffix != ".safetensors":
            shutil.copy(path, target)
            continue
        tensors = {name: _shaken(tensor, random) for name, tensor in load_file(path).items()}
        save_file(tensors, target / path.name, metadata={"format": "pt"})


def _shaken(tensor: torch.Tensor, random: torch.Generator) -> torch.Tensor:
    if tensor.dim() < 2 or not tensor.is_floating_point():
        return tensor
    noise = torch.randn(tensor.shape, generator=random) * (_NOISE * tensor.float().std())
    return (tensor.float() + noise).to(tensor.dtype)


if __name__ == "__main__":
    what, model, target, seed = sys.argv[1:]
    {"adapter": adapter, "weights": weights}[what](Path(model), Path(target), int(seed))
