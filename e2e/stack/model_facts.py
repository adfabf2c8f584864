"""What the rig has to know of a model before an engine runs: its KV geometry and its longest prompt."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class ModelFacts:
    """``heads`` and ``kv_heads`` of the whole model, not of a rank; ``max_tokens``: prompt and answer together, None
    when unsaid; ``dtype``: of its weights, as its config.json has it."""

    layers: int
    kv_heads: int
    head_size: int
    max_tokens: int | None
    heads: int | None = None
    dtype: str | None = None

    def shared_by(self, ranks: int) -> bool:
        """Can tensor-parallel ranks share the heads? vLLM gives each rank as many, and a KV head to several ranks only
        where there are fewer of them than ranks."""
        fewer, more = sorted((ranks, self.kv_heads))
        return (self.heads or ranks) % ranks == 0 and more % fewer == 0

    def kv_bytes_per_token(self, element_bytes: int) -> int:
        """K and V of all layers."""
        return 2 * self.layers * self.kv_heads * self.head_size * element_bytes


def weights_bytes(model: str) -> int:
    """Of the files of a model folder; 0 for a hub id."""
    return sum(path.stat().st_size for path in Path(model).glob("*.safetensors"))


def model_facts(model: str) -> ModelFacts | None:
    """From the config.json of a model folder; None for a hub id, or a model that doesn't say."""
    config_file = Path(model) / "config.json"
    if not config_file.is_file():
        return None
    config = json.loads(config_file.read_text(encoding="utf-8"))
    if not isinstance(config, dict):
        return None
    try:
        heads = int(config["num_attention_heads"])
        return ModelFacts(
            layers=int(config["num_hidden_layers"]),
            kv_heads=int(config.get("num_key_value_heads") or heads),
            head_size=int(config.get("head_dim") or config["hidden_size"] // heads),
            max_tokens=longest(config),
            heads=heads,
            dtype=str(config.get("dtype") or config.get("torch_dtype") or "") or None,
        )
    except (KeyError, TypeError, ValueError, ZeroDivisionError):
        return None


def longest(config: Mapping[str, object]) -> int | None:
    """Tokens of prompt and answer that a model takes, by its config.json; of its text part where it has several."""
    for part in (config, config.get("text_config")):
        found = part.get("max_position_embeddings") if isinstance(part, Mapping) else None
        if isinstance(found, int) and found > 0:
            return found
    return None
