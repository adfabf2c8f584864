"""A document as Markdown."""

from __future__ import annotations

from collections.abc import Sequence

from e2e.report.document import Block, Code, Document, Heading, Items, Lines, Paragraph, Table
from e2e.report.escape import cell, code, fence, inline


def render(document: Document) -> str:
    return "\n\n".join(filter(None, map(_block, document))) + "\n"


def _block(block: Block) -> str:
    match block:
        case Heading(text, level):
            return f"{'#' * level} {_text(text, begins_line=False)}"
        case Paragraph(text, strong):
            return f"**{_text(text)}**" if strong else _text(text)
        case Items(texts, depth):
            return "\n".join(f"{'  ' * depth}- {_text(text)}" for text in texts)
        case Table(headings, rows):
            return "\n".join([_row(headings), "|" + "---|" * len(headings), *map(_row, rows)])
        case Lines(text):
            return fence(text)


def _row(texts: Sequence[str]) -> str:
    return f"| {' | '.join(cell(_text(text, begins_line=False)) for text in texts)} |"


def _text(text: str, *, begins_line: bool = True) -> str:
    return code(text) if isinstance(text, Code) else inline(text, begins_line=begins_line)
