"""A document on a terminal, or in a log or pipe."""

from __future__ import annotations

from textwrap import wrap
from typing import TextIO

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from e2e.report.document import Block, Document, Heading, Items, Lines, Paragraph, Table
from e2e.report.escape import one_line, visible

#: Columns of a log or pipe, which has none of its own: wide enough for one line a cell.
LOG_WIDTH = 160
#: Blanks between two columns.
GAP = 2


def console(stream: TextIO) -> Console:
    """Nothing that is printed on it is markup."""
    width = None if stream.isatty() else LOG_WIDTH
    return Console(file=stream, highlight=False, markup=False, emoji=False, width=width)


def show(document: Document, *, on: Console) -> None:
    before: Block | None = None
    for block in document:
        if before is not None and (isinstance(block, (Heading, Table)) or isinstance(before, Table)):
            on.print()
        _show(block, on)
        before = block


def _show(block: Block, on: Console) -> None:
    match block:
        case Heading(text, _, style):
            _wrapped(text, on, style=style)
        case Paragraph(text, strong, style):
            _wrapped(text, on, style=style or ("bold" if strong else ""))
        case Items(texts, depth):
            for text in texts:
                _wrapped(text, on, indent=2 + 2 * depth)
        case Lines(text):
            for line in visible(text).strip("\n").split("\n"):
                on.print(Text(f"    {line}", style="dim"), soft_wrap=True)
        case Table():
            _table(block, on)


def _wrapped(text: str, on: Console, *, indent: int = 0, style: str = "") -> None:
    """At blanks only: what is longer than a line, such as an id or a path, stays whole."""
    width = max(on.width - indent, 20)
    for line in wrap(one_line(text), width, break_long_words=False, break_on_hyphens=False):
        on.print(Text(" " * indent + line, style=style), soft_wrap=True)


def _table(table: Table, on: Console) -> None:
    """Columns that don't fit are left out, in the table's order; what is shown never folds."""
    lines = [tuple(map(one_line, row)) for row in (table.headings, *table.rows)]
    widths = [max(cell_len(line[number]) for line in lines) for number in range(len(table.headings))]
    shown = list(range(len(widths)))
    for heading in table.optional:
        if sum(widths[number] for number in shown) + GAP * (len(shown) - 1) <= on.width:
            break
        shown.remove(table.headings.index(heading))
    styles = ["bold", *(table.styles or [""] * len(table.rows))]
    for line, style in zip(lines, styles, strict=True):
        row = Text()
        for place, number in enumerate(shown):
            blank = " " * (widths[number] - cell_len(line[number]))
            text = line[number] + blank if number < table.left else blank + line[number]
            row.append(" " * GAP * bool(place))
            row.append(text, style=style if number == 1 or style == "bold" else "")
        row.rstrip()
        on.print(row, soft_wrap=True)
