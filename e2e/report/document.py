"""What a report says, as blocks of raw text: every report is built of these, and only the renderers, markdown.py,
terminal.py and html.py, know how to show them. So no text can reach a reader unescaped."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


class Code(str):
    """Text to be shown as it stands, such as a cell's id or a path."""

    __slots__ = ()


class Judged(str):
    """A verdict, and maybe ``: `` and its reason, to be marked where there are colours."""

    __slots__ = ()


class Link(str):
    """Text that leads to ``goes_to`` where there are links: an anchor of this page, ``#`` and all, or the address of
    another page beside it; nowhere, where that is empty."""

    goes_to: str

    def __new__(cls, text: str, goes_to: str) -> Link:
        made = super().__new__(cls, text)
        made.goes_to = goes_to
        return made


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


# Only pages have these; all that they tell stands in words elsewhere, too.


@dataclass(frozen=True)
class Tile:
    """``goes_to``: as of a Link."""

    judged: Judged
    goes_to: str = ""


@dataclass(frozen=True)
class Matrix:
    """``rows``: (heading, a tile for each column, None where there is none)."""

    corner: str
    columns: Sequence[str]
    rows: Sequence[tuple[str, Sequence[Tile | None]]]


@dataclass(frozen=True)
class KvPicture:
    """``layers``: a text for each, a sign for each block; see ``KvMap``."""

    layers: Sequence[str]
    says: str


@dataclass(frozen=True)
class Plot:
    """``svg``: a whole file, made by ``plots.py``. ``says``: what is to be seen, for those who can't."""

    svg: str
    says: str


@dataclass(frozen=True)
class Fold:
    """Blocks that a reader opens. ``spare``: of a page that grows too large, the greatest goes first."""

    title: str
    blocks: Sequence[PageBlock]
    judged: Judged | None = None
    anchor: str = ""
    open: bool = False
    spare: int = 0


PageBlock = Block | Matrix | KvPicture | Plot | Fold
Page = Sequence[PageBlock]
