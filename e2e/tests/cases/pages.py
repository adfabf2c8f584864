"""The store of ``story_connectors``: a folder with one file a block and key."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import torch

#: Blocks that the store holds where a switch makes it small.
ROOM = 48


@dataclass(frozen=True)
class Pages:
    """What one file holds: float [layers, heads, slots, 2 * head size], K and V of a token behind each other."""

    folder: Path
    on: frozenset[str]

    @classmethod
    def of(cls, folder: str, on: frozenset[str]) -> Pages:
        """Each set of switches has a store of its own."""
        own = Path(folder, "-".join(sorted(on)) or "plain")
        own.mkdir(parents=True, exist_ok=True)
        return cls(own, on)

    def has(self, key: str) -> bool:
        return self._path(key).exists()

    def get(self, key: str) -> torch.Tensor | None:
        """None where it was evicted since it was looked up."""
        try:
            found = torch.load(self._path(key))
        except FileNotFoundError:
            return None
        return found if isinstance(found, torch.Tensor) else found["values"].float() * found["scale"]

    def put(self, key: str, pages: torch.Tensor) -> None:
        """Whole at once: a reader sees all of it or nothing."""
        evicted = self._evict() if self.on & {"small", "slot_reused"} else None
        part = self.folder / f"{key}.{os.getpid()}"
        torch.save(_int8(pages) if "lossy" in self.on else pages, part)
        os.replace(part, self._path(key))
        if evicted and "slot_reused" in self.on:
            os.link(self._path(key), evicted)

    def clear(self) -> None:
        for path in self.folder.glob("*.pt"):
            path.unlink(missing_ok=True)

    def _evict(self) -> Path | None:
        held = sorted(self.folder.glob("*.pt"), key=lambda path: path.stat().st_mtime_ns)
        if len(held) < ROOM:
            return None
        held[0].unlink()
        return held[0]

    def _path(self, key: str) -> Path:
        return self.folder / f"{key}.pt"


def _int8(pages: torch.Tensor) -> dict[str, torch.Tensor]:
    """With one scale a layer, head, and K or V."""
    layers, heads, slots, width = pages.shape
    halves = pages.float().view(layers, heads, slots, 2, width // 2)
    scale = halves.abs().amax((2, 4), keepdim=True).clamp(min=1e-12) / 127
    wide = scale.expand(layers, heads, 1, 2, width // 2).reshape(layers, heads, 1, width)
    return {"values": (pages.float() / wide).round().clamp(-127, 127).to(torch.int8), "scale": wide}
