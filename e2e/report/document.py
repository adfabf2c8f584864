"""What a report says, as blocks of raw text: every report is built of these, and only the two renderers, markdown.py
and terminal.py, know how to show them. So no text can reach a reader unescaped."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


class Code(str):
    """Text to be shown as it stands, such as a cell's id or a path."""

    __slots__ = ()


@dataclass(frozen=True)
class Heading:
    """``style``: for a terminal, as below."""

    text: str
    level: int = 2
    style: str = "bold"


@dataclass(frozen=True)
class Paragraph:
    text: str
    strong: bool = False
    style: str = ""


@dataclass(frozen=True)
class Items:
    texts: Sequence[str]
    depth: int = 0


@dataclass(frozen=True)
class Table:
    """``left``: how many columns, from the first, are words rather than figures. ``optional``: columns that a narrow
    terminal may go without, the first to go first. ``styles``: one per row, for a terminal."""

    headings: Sequence[str]
    rows: Sequence[Sequence[str]]
    left: int = 1
    optional: Sequence[str] = ()
    styles: Sequence[str] = ()


@dataclass(frozen=True)
class Lines:
    """Whole lines as they are: a log's end, a command."""

    text: str


Block = Heading | Paragraph | Items | Table | Lines
Document = Sequence[Block]
