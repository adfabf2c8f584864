"""Models of a known shape with random weights, for what no trained model at hand shows: ranks that share heads, or the
speed of a size that nobody wants to download. ``python -m e2e.stack.shaped NAME [FOLDER [TOKENIZER]]`` makes one in a
folder and prints its own.
"""

from __future__ import annotations

import contextlib
import json
import math
import shutil
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from e2e.base.errors import RigError, SettingsError
from e2e.stack.model import DEFAULT_CACHE, prepare_model

SEED = 0
#: Of the tokenizer's files what a Llama needs; the others speak of SmolLM2.
TOKENIZER = ("tokenizer.json", "tokenizer_config.json")


@dataclass(frozen=True)
class Shape:
    """A Llama's. ``positions``: tokens that it is made for. ``on_gpu``: so large that a GPU draws it where there is
    one; from the same seed it then is another model than a CPU's."""

    layers: int
    heads: int
    kv_heads: int
    head_size: int
    intermediate: int
    positions: int = 8192
    on_gpu: bool = True

    @property
    def hidden(self) -> int:
        return self.heads * self.head_size


SHAPES = {
    "tiny": Shape(4, 8, 4, 32, 512, on_gpu=False),
    "1b": Shape(16, 32, 8, 64, 8192, positions=1 << 16),
    "8b": Shape(32, 32, 8, 128, 14336, positions=1 << 16),
}


def shaped_model(name: str, cache_dir: Path = DEFAULT_CACHE, *, tokenizer: str | None = None) -> str:
    """Folder of ``SHAPES[name]`` in bfloat16, with the default model's tokenizer; made once. ``tokenizer``: the folder
    of another model with one, and a Llama's config.json. Raises SettingsError; RigError without a default model."""
    if name not in SHAPES:
        raise SettingsError(f"There is no shape {name!r}; use {', '.join(SHAPES)}.")
    target = cache_dir.resolve() / f"{name}-llama-{SEED}"
    if not target.is_dir():
        source = Path(tokenizer or prepare_model("smollm2", cache_dir=cache_dir))
        with tempfile.TemporaryDirectory(prefix=f".{name}-", dir=cache_dir) as temporary:
            made = Path(temporary) / target.name
            _make(made, source, SHAPES[name])
            with contextlib.suppress(OSError):  # another process may have been faster
                made.rename(target)
    return str(target)


def _make(folder: Path, source: Path, shape: Shape) -> None:
    import torch
    from safetensors.torch import save_file

    config = json.loads((source / "config.json").read_text())
    config |= {
        "_model_name_or_path": folder.name, "num_hidden_layers": shape.layers, "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads, "head_dim": shape.head_size, "hidden_size": shape.hidden,
        "intermediate_size": shape.intermediate, "max_position_embeddings": shape.positions,
    }  # fmt: skip
    device = torch.device("cuda" if shape.on_gpu and torch.cuda.is_available() else "cpu")
    generator = torch.Generator(device).manual_seed(SEED)

    def weight(out: int, fan_in: int) -> torch.Tensor:
        # larger than at a training's start, so that attention does look at something
        random = torch.empty(out, fan_in, device=device).normal_(std=1.5 / math.sqrt(fan_in), generator=generator)
        return random.to(torch.bfloat16).cpu()

    def ones() -> torch.Tensor:
        return torch.ones(shape.hidden, dtype=torch.bfloat16)

    hidden, kv, wide = shape.hidden, shape.kv_heads * shape.head_size, shape.intermediate
    weights = {"model.embed_tokens.weight": weight(config["vocab_size"], hidden), "model.norm.weight": ones()}
    for number in range(shape.layers):
        layer = f"model.layers.{number}"
        weights |= {f"{layer}.{name}.weight": ones() for name in ("input_layernorm", "post_attention_layernorm")}
        for name, out, fan_in in (
            ("self_attn.q_proj", hidden, hidden), ("self_attn.o_proj", hidden, hidden),
            ("self_attn.k_proj", kv, hidden), ("self_attn.v_proj", kv, hidden),
            ("mlp.gate_proj", wide, hidden), ("mlp.up_proj", wide, hidden), ("mlp.down_proj", hidden, wide),
        ):  # fmt: skip
            weights[f"{layer}.{name}.weight"] = weight(out, fan_in)
    folder.mkdir()
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(config, indent=1))
    for name in TOKENIZER:
        shutil.copy(source / name, folder)


if __name__ == "__main__":
    name, folder, tokenizer = [*sys.argv[1:4], *["tiny", str(DEFAULT_CACHE), None][len(sys.argv[1:4]) :]]
    try:
        print(shaped_model(name, Path(folder), tokenizer=tokenizer))
    except (SettingsError, RigError) as error:
        sys.exit(str(error))
