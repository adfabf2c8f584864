"""A model that has a hub id: is there one, and how long may a prompt be? Asked before any engine starts."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import requests

from e2e.base.errors import SettingsError

#: Seconds.
LIMIT_S = 10.0
_OTHER = "give a hub id that exists, or a model folder"


def hub_config(model: str, *, endpoint: str | None = None, limit_s: float = LIMIT_S) -> Mapping[str, object]:
    """The config.json of ``org/name``, out of the local cache or from the hub. ``endpoint``: the hub's address, None
    for the one that huggingface_hub takes. SettingsError when there is no such model, when it may not be had, and when
    nobody can tell."""
    # half a second, for those only who name a hub id
    from huggingface_hub import constants, hf_hub_url, try_to_load_from_cache
    from huggingface_hub.utils import build_hf_headers

    try:
        cached = try_to_load_from_cache(model, "config.json")
    except ValueError as error:
        raise SettingsError(f"model {model!r} is no hub id; {_OTHER}.") from error
    if isinstance(cached, str):
        return _parsed(model, Path(cached).read_bytes())
    if constants.HF_HUB_OFFLINE:
        raise SettingsError(f"model {model!r} is not in the cache, and HF_HUB_OFFLINE forbids to look it up; {_OTHER}.")
    url = hf_hub_url(model, "config.json", endpoint=endpoint)
    try:
        answer = requests.get(url, headers=build_hf_headers(), timeout=limit_s)
    except requests.RequestException as error:
        raise SettingsError(
            f"model {model!r} is not in the cache and can't be looked up ({type(error).__name__} at "
            f"{url.split('/', 3)[2]}); see to the network, or {_OTHER}."
        ) from error
    if answer.status_code == 200:
        return _parsed(model, answer.content)
    raise SettingsError(_refused(model, answer))


def _refused(model: str, answer: requests.Response) -> str:
    """By X-Error-Code, as huggingface_hub reads it: a missing model is a 401 to whom has no token."""
    code = answer.headers.get("X-Error-Code", "")
    if code == "GatedRepo":
        return f"model {model!r} is gated; ask for access at the hub and set HF_TOKEN, or {_OTHER}."
    if code == "EntryNotFound":
        return f"model {model!r} has no config.json, so vLLM can't load it; {_OTHER}."
    if code == "RepoNotFound" or answer.status_code in (401, 403, 404):
        return f"model {model!r} is not at the hub, or HF_TOKEN may not see it; {_OTHER}."
    return f"model {model!r} can't be looked up (HTTP {answer.status_code}); try again, or {_OTHER}."


def _parsed(model: str, content: bytes) -> Mapping[str, object]:
    try:
        found = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise SettingsError(f"the config.json of model {model!r} is no JSON; {_OTHER}.") from error
    return found if isinstance(found, dict) else {}
