"""What a planted fault can get hold of. Every hook does nothing by default; a fault overrides the few that it is.

A fault corrupts and never crashes: what it writes stays inside the layer's pages. It proves that it acted by calling
``scene.fired()``; one that had nothing to spoil must not call it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch

from e2e.inside.geometry import PagedLayer
from e2e.inside.placement.base import Placement
from e2e.inside.pool import Pool
from e2e.inside.publish import LOAD, STORE, Loading, Storing


@dataclass(frozen=True)
class Scene:
    """Where a fault acts: layers of the model, tokens per block and per chunk, and how it says that it did act.
    ``placement``: of the request. ``heads_first``: do pages hold head by head, not token by token. ``rank``: of
    ``ranks``, this process's. ``first``: tokens in front of a load, which vLLM has itself."""

    layers: int
    block_size: int
    chunk_tokens: int
    fired: Callable[[], None]
    placement: str = "index"
    heads_first: bool = False
    rank: int = 0
    ranks: int = 1
    first: int = 0

    @property
    def last_of_several(self) -> bool:
        return self.ranks > 1 and self.rank == self.ranks - 1

    @property
    def middle(self) -> int:
        """The layer that single-layer faults strike: neither the first nor the last where there are more than two."""
        return self.layers // 2


@dataclass(frozen=True)
class Put:
    """What was put into the pool: ``objects``, named buffers (on a GPU tensors), as one ``group`` with a ``tag``.
    ``why``: it is not there, empty where it is. ``evicted``: groups that went for it. ``first``: is it a prompt's first
    chunk."""

    group: str
    tag: str
    objects: Sequence[tuple[str, memoryview | torch.Tensor]]
    why: str
    evicted: Sequence[str]
    first: bool

    def under(self, group: str) -> list[tuple[str, memoryview | torch.Tensor]]:
        """The same objects with names of another group."""
        return [(group + name.removeprefix(self.group), content) for name, content in self.objects]


@dataclass(frozen=True)
class Placing:
    """``staged`` [len(group), 2, T, H, D] is to be scattered into ``layers``, which are those of ``group``."""

    placement: Placement
    staged: torch.Tensor
    layers: Sequence[PagedLayer]
    group: range
    slots: torch.Tensor

    def scatter(self) -> int:
        return self.placement.scatter(self.staged, self.layers, self.slots)


class Fault:
    name = ""
    #: does ``staged``, given one layer at a time, do all of it
    around_any = False
    #: seconds for which an overlapped load is held back, None for the connector's own pace
    hold_s: float | None = None
    #: does a forward wait for the layers it reads
    waits = True
    #: are chunks stored when the step begins
    stores_early = False
    #: requests after which a chunk is read from its blocks, which nobody holds
    stores_late = 0
    #: is a chunk read from its blocks when its store comes to it, though its request may have ended
    reads_when_stored = False
    #: are the blocks of a request that has ended kept until another cell's comes
    keeps_blocks = False
    #: how it is stored and loaded, step by step
    store_steps: Sequence[Storing] = STORE
    load_steps: Sequence[Loading] = LOAD
    #: do a request's blocks stay until its load has ended, though the request has
    outlives_request = True

    def named_by(self, parts: dict[str, object], fired: Callable[[], None]) -> dict[str, object]:
        """What is to go into a request's keys -> what does."""
        return parts

    def named(self, key: str, own: bytes) -> str:
        """A chunk's key -> what it is called. ``own``: its namespace and its own tokens alone."""
        return key

    def stored_from(self, chunk: int, loaded: int) -> int:
        """Number of the chunk that is stored -> that from whose blocks it is read. ``loaded``: chunks of its request
        that came out of the pool."""
        return chunk

    def keys(self, keys: list[str], stored: Sequence[Mapping[int, str]], scene: Scene) -> list[str]:
        """Chunk keys of a load -> those that are read. ``stored``: chunk number -> key, per prompt stored with the same
        settings, oldest first."""
        return keys

    def into(self, tables: list[list[int]], former: Sequence[list[int] | None], scene: Scene) -> list[list[int]]:
        """Block tables of the loads that one step begins -> those that they are placed by. ``former``: of each the one
        of the load before of the same request, None for its first."""
        return tables

    def gathered(self, slots: torch.Tensor, begun: int, generated: int, scene: Scene) -> torch.Tensor:
        """Slots of a chunk that is stored -> those that are read. ``begun``: tokens of it that were there before this
        step; ``generated``: tokens at its end that are of the answer."""
        return slots

    def share(self, rank: int, scene: Scene) -> int:
        """The rank whose share of each chunk this ``rank`` reads."""
        return rank

    def vanished(self, chunk: int, chunks: int, scene: Scene) -> bool:
        """Is this chunk of the load found to be gone, and the failure kept quiet?"""
        return False

    def stored(self, key: str, kv: torch.Tensor, scene: Scene) -> None:
        """``kv`` [L, 2, chunk, H, D] of a chunk is on its way to the pool, and may be changed in place."""

    def found(self, key: str, kv: torch.Tensor, scene: Scene) -> torch.Tensor:
        """What the pool held of a chunk, [L, 2, chunk, H, D] -> what is taken for it."""
        return kv

    def unreadable(self, whole: bool, scene: Scene) -> bool:
        """An object of the load can't be read, or, ``whole``, its bytes are others than were stored. Is it taken for
        good?"""
        return False

    def invalid(self, blocks: list[int], scene: Scene) -> list[int]:
        """Blocks of a failed load -> those that vLLM is told of."""
        return blocks

    def staged(self, staged: torch.Tensor, group: range, scene: Scene) -> torch.Tensor:
        """KV that was read, [len(group), 2, T, H, D] of layers ``group`` -> what is placed, of the same shape."""
        return staged

    def place(self, one: Placing, scene: Scene) -> int:
        """Returns the number of placement calls."""
        return one.scatter()

    def after_put(self, pool: Pool, one: Put, before: Put | None, scene: Scene) -> str:
        """Returns why ``one`` is not in the pool, as the connector has it. ``before``: the last one that is there."""
        return one.why

    def after_load(self, layers: Sequence[PagedLayer], mine: list[int], before: list[int], scene: Scene) -> None:
        """A load is in blocks ``mine``, in all ``layers``; that before it, with the same settings, had ``before``."""

    def answered(self, layers: Sequence[PagedLayer], blocks: list[int], prompt: int, token: int, scene: Scene) -> None:
        """A request that something was loaded for is about to compute its ``token``-th output token, from 2.
        ``blocks``: its whole table; ``prompt``: its tokens."""

    def after_store(self, layer: PagedLayer, number: int, blocks: Sequence[int], scene: Scene) -> None:
        """Layer ``number`` of a chunk that lies in ``blocks`` was copied out, and the request goes on."""
