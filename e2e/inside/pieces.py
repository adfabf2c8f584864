"""What of a load is read, verified and placed together."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from e2e.inside.scheduler_side import Load

#: A load of more is cut, so that what comes next is copied while this piece is verified and placed.
PIECE_BYTES = 128 << 20
Item = TypeVar("Item")


@dataclass(frozen=True)
class Piece:
    """``layers`` of ``chunks``, numbers of both. ``tokens``: of the load's own, from its first on."""

    chunks: range
    layers: range
    tokens: slice


def pieces(load: Load, *, layers: int, together: int = 1, chunk_tokens: int, chunk_bytes: int) -> list[Piece]:
    """An overlapped load of layerwise objects goes by layers, ``together`` at a time, so that their bytes are copied
    while the forward computes those before them. Any other goes by chunks. A planted fault gets hold of all at once."""
    chunks = range(load.first // chunk_tokens, -(-load.end // chunk_tokens))
    many, groups = len(chunks), [range(layers)]
    if not load.settings.fault:
        if load.settings.overlap and load.settings.storage_format == "layerwise":
            groups = by_layers(layers, together)
        else:
            many = max(PIECE_BYTES // chunk_bytes, 1)
    return [
        Piece(some, group, tokens_of(load, some, chunk_tokens))
        for some in (chunks[at : at + many] for at in range(0, len(chunks), many))
        for group in groups
    ]


def by_layers(layers: int, together: int) -> list[range]:
    """The first one alone, so that copying begins early, and the last, so that little is left to do when it ends."""
    between = range(layers)[1:-1]
    return [
        range(layers)[:1], *(between[at : at + together] for at in range(0, len(between), together)),
        *([range(layers)[-1:]] if layers > 1 else []),
    ]  # fmt: skip


def tokens_of(load: Load, chunks: range, chunk_tokens: int) -> slice:
    """Of the load's own tokens those of some chunks."""
    first, end = max(load.first, chunks.start * chunk_tokens), min(load.end, chunks.stop * chunk_tokens)
    return slice(first - load.first, end - load.first)


def ahead(items: Iterable[Item], count: int) -> Iterator[Item]:
    """The same, each when ``count`` more have begun."""
    begun: deque[Item] = deque()
    for item in items:
        begun.append(item)
        if len(begun) > count:
            yield begun.popleft()
    yield from begun
