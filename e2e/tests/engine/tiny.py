"""A model that ranks can share: random weights, made once. ``python -m e2e.tests.engine.tiny`` prints its folder.

The default model has nine heads over three KV heads, and two ranks can't share those.
"""

from __future__ import annotations

import contextlib
import json
import math
import shutil
import tempfile
from pathlib import Path

from e2e.stack.model import DEFAULT_CACHE, prepare_model

SEED = 0
LAYERS, HEADS, KV_HEADS, HEAD_SIZE, INTERMEDIATE = 4, 8, 4, 32, 512
HIDDEN = HEADS * HEAD_SIZE
#: Of the tokenizer's files what a Llama needs; the others speak of SmolLM2.
TOKENIZER = ("tokenizer.json", "tokenizer_config.json")


def tiny_model(cache_dir: Path = DEFAULT_CACHE) -> str:
    """A Llama of 8 heads over 4 KV heads and 4 layers, with the default model's tokenizer."""
    target = cache_dir.resolve() / f"tiny-llama-{SEED}"
    if not target.is_dir():
        source = Path(prepare_model("smollm2", cache_dir=cache_dir))
        with tempfile.TemporaryDirectory(prefix=".tiny-", dir=cache_dir) as temporary:
            made = Path(temporary) / target.name
            _make(made, source)
            with contextlib.suppress(OSError):  # another process may have been faster
                made.rename(target)
    return str(target)


def _make(folder: Path, source: Path) -> None:
    import torch
    from safetensors.torch import save_file

    config = json.loads((source / "config.json").read_text())
    config |= {
        "_model_name_or_path": folder.name, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS, "head_dim": HEAD_SIZE, "hidden_size": HIDDEN,
        "intermediate_size": INTERMEDIATE,
    }  # fmt: skip
    generator = torch.Generator().manual_seed(SEED)

    def weight(out: int, fan_in: int) -> torch.Tensor:
        # larger than at a training's start, so that attention does look at something
        random = torch.empty(out, fan_in).normal_(std=1.5 / math.sqrt(fan_in), generator=generator)
        return random.to(torch.bfloat16)

    def ones() -> torch.Tensor:
        return torch.ones(HIDDEN, dtype=torch.bfloat16)

    weights = {"model.embed_tokens.weight": weight(config["vocab_size"], HIDDEN), "model.norm.weight": ones()}
    for number in range(LAYERS):
        layer = f"model.layers.{number}"
        weights |= {f"{layer}.{name}.weight": ones() for name in ("input_layernorm", "post_attention_layernorm")}
        for name, out, fan_in in (
            ("self_attn.q_proj", HIDDEN, HIDDEN), ("self_attn.o_proj", HIDDEN, HIDDEN),
            ("self_attn.k_proj", KV_HEADS * HEAD_SIZE, HIDDEN), ("self_attn.v_proj", KV_HEADS * HEAD_SIZE, HIDDEN),
            ("mlp.gate_proj", INTERMEDIATE, HIDDEN), ("mlp.up_proj", INTERMEDIATE, HIDDEN),
            ("mlp.down_proj", HIDDEN, INTERMEDIATE),
        ):  # fmt: skip
            weights[f"{layer}.{name}.weight"] = weight(out, fan_in)
    folder.mkdir()
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(config, indent=1))
    for name in TOKENIZER:
        shutil.copy(source / name, folder)


if __name__ == "__main__":
    print(tiny_model())
