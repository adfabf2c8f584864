"""Chunk keys: one running hash over the whole prefix, so a chunk's key names everything before it too."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np


def weights(model: str) -> list[tuple[str, int, int]]:
    """Name, size and time of change (ns) of each file of a model or adapter folder; nothing of a name in a hub."""
    folder = Path(model)
    files = [folder] if folder.is_file() else sorted(folder.iterdir()) if folder.is_dir() else []
    return [(file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in files if file.is_file()]


def lora(request: object | None) -> dict[str, object] | None:
    """What tells one adapter (vLLM's LoRARequest) from another; its number is the engine's alone."""
    if request is None:
        return None
    path = getattr(request, "lora_path", "") or getattr(request, "lora_local_path", "")
    return {"name": request.lora_name, "path": path, "weights": weights(path) if path else []}


def more_than_tokens(request: object) -> bool:
    """Does the KV of a prompt hang on what its token ids don't tell: images, sounds, embeddings?"""
    parts = ("mm_features", "mm_inputs", "mm_hashes", "prompt_embeds")
    found = [getattr(request, name, None) for name in parts]
    return any(value is not None and (not isinstance(value, list) or value) for value in found)


def namespace(parts: Mapping[str, object]) -> bytes:
    """What must be equal for two engines or requests to share KV: model, dtype, geometry, salt, cell settings."""
    return json.dumps(dict(parts), sort_keys=True, default=str).encode()


class Chain:
    """Keys of one request's whole chunks of ``chunk`` tokens, in order, as its tokens become known; the partial last
    chunk has none.

    blake2b-128 over the namespace and the int64 bytes of *all* tokens up to the end of the chunk, as Maru does
    (Maru: 64 bits and no namespace, so two models or salts collide there). ``named``: (key, namespace and the chunk's
    own tokens) -> the key that it gets, for a planted fault.
    """

    def __init__(self, chunk: int, space: bytes, named: Callable[[str, bytes], str] = lambda key, own: key) -> None:
        self.keys: list[str] = []
        self._chunk, self._space, self._named = chunk, space, named
        self._running = hashlib.blake2b(space, digest_size=16)

    def follow(self, token_ids: Sequence[int]) -> list[str]:
        """The keys, of which there may be more now. ``token_ids``: all that are known."""
        for end in range((len(self.keys) + 1) * self._chunk, len(token_ids) + 1, self._chunk):
            own = np.asarray(token_ids[end - self._chunk : end], dtype=np.int64).tobytes()
            self._running.update(own)
            self.keys.append(self._named(self._running.copy().hexdigest(), self._space + own))
        return self.keys


def chunk_keys(token_ids: Sequence[int], chunk: int, space: bytes) -> list[str]:
    """Keys of a token list, see ``Chain``."""
    return Chain(chunk, space).follow(token_ids)


def object_names(key: str, storage_format: str, layers: Iterable[int]) -> list[str]:
    """Names of the objects that hold ``layers`` of one chunk: ``<key>``, or ``<key>_L<i>`` for each."""
    return [key] if storage_format == "chunkwise" else [f"{key}_L{layer}" for layer in layers]
