"""One row of the table of wrong inputs: what is given, what must be said, with which exit code."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Row:
    """``argv``: words of ``maru-e2e``, run in an empty folder. ``says``: words that the one sentence on stderr must
    hold, cause and cure. ``given``: makes the files that the row needs in that folder. ``environ``: variables."""

    name: str
    argv: tuple[str, ...]
    code: int
    says: tuple[str, ...]
    given: Callable[[Path], None] | None = None
    environ: Mapping[str, str] | None = None
