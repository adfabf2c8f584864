"""What engines and prompts are made of: settled before anything is written, so that what can't be had is refused."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from e2e.replay.client import EngineClient
from e2e.replay.prompts import Encode, documents, folder_tokenizer
from e2e.report.progress import said_if_slow
from e2e.settings.settings import Settings
from e2e.settings.world import models_elsewhere
from e2e.stack.attach import Attached
from e2e.stack.hub import hub_config
from e2e.stack.model import prepare_model
from e2e.stack.model_facts import ModelFacts, longest, model_facts


@dataclass(frozen=True)
class Material:
    """``python``: that of the engines. ``model``: a folder or a hub id, empty where an engine is attached.
    ``most_tokens``: prompt and answer together, None when nobody says. ``encode``: None when only an engine of the run
    can tell (a hub id, an old form of tokenizer)."""

    python: str
    model: str
    facts: ModelFacts | None
    most_tokens: int | None
    texts: tuple[str, ...]
    encode: Encode | None
    attached: Attached | None = None


def material(settings: Settings, *, python: str, attached: Attached | None = None) -> Material:
    """SettingsError for what can't be used."""
    texts = tuple(documents(settings.prompts_dir))
    if attached:
        client = EngineClient(attached.url, timeout_s=settings.request_limit_s, api_key=attached.api_key)
        return Material(python, "", None, attached.max_tokens, texts, client.tokenize, attached)
    with said_if_slow(f"preparing model {settings.model} ..."):
        model = prepare_model(settings.model, python=python)
    if Path(model).is_dir():
        facts, has_tokens = model_facts(model), (Path(model) / "tokenizer.json").is_file()
        encode = folder_tokenizer(Path(model)) if has_tokens else None
        return Material(python, model, facts, facts and facts.max_tokens, texts, encode)
    if models_elsewhere():
        return Material(python, model, None, None, texts, None)
    with said_if_slow(f"looking up model {model} ..."):
        return Material(python, model, None, longest(hub_config(model)), texts, None)
