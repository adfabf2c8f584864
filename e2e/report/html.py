"""A page as HTML: one file that needs nothing else, no script and no network. Its templates lie in ``pages/``."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from itertools import groupby

from jinja2 import Environment, PackageLoader
from jinja2.environment import TemplateModule
from markupsafe import Markup

from e2e.base.exhibit import RIGHT, UNREAD, WRONG
from e2e.report.document import Fold, Heading, Page, PageBlock, Paragraph
from e2e.report.escape import visible

#: Bytes of a page; what a fold says is left out before a page grows beyond.
LIMIT = 1_900_000
LEFT_OUT = Paragraph("Left out, so that the page stays small; report.json and the recording have it.")
#: Rows of a table and entries of a list that a page shows, at first and where that is too much; characters of a text.
ROWS, CHARACTERS = (1500, 300, 60), 20_000
#: Characters from which on a figure is a list of many, which may be broken.
MANY = 48
_SIGNS = {RIGHT: "right", WRONG: "wrong", UNREAD: "unread"}


def render(page: Page) -> str:
    """``page`` begins with its title, a Heading."""
    title = next((block.text for block in page if isinstance(block, Heading)), "maru-e2e")
    body = Markup("\n").join(_fitting(page))
    style = _style()
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    return (
        _environment()
        .get_template("page.html")
        .render(title=title, style=Markup(style), style_hash=f"sha256-{digest}", body=body)
    )


def _fitting(page: Page) -> list[Markup]:
    """What is folded away goes first where it is too much, then what is long."""
    for rows in ROWS:
        parts = [_shown(block, rows) for block in page]
        total = sum(len(part.encode()) for part in parts)
        folds = [number for number, block in enumerate(page) if isinstance(block, Fold)]
        for number in sorted(folds, key=lambda number: (page[number].spare, number), reverse=True):
            if total <= LIMIT:
                return parts
            less = _shown(replace(page[number], blocks=[LEFT_OUT], open=False), rows)
            total += len(less.encode()) - len(parts[number].encode())
            parts[number] = less
        if total <= LIMIT:
            break
    return parts


def _shown(block: PageBlock, rows: int) -> Markup:
    return Markup(_blocks(rows).show(block).strip())


@cache
def _blocks(rows: int) -> TemplateModule:
    return _environment().get_template("blocks.html").make_module({"ROWS": rows, "MANY": MANY})


@cache
def _environment() -> Environment:
    made = Environment(
        loader=PackageLoader("e2e.report", "pages"), autoescape=True, trim_blocks=True, lstrip_blocks=True,
        finalize=_harmless, keep_trailing_newline=True,
    )  # fmt: skip
    made.filters.update(kind=lambda value: type(value).__name__, verdict=_verdict, paths=_paths, data_url=_data_url)
    return made


@cache
def _style() -> str:
    return _environment().loader.get_source(_environment(), "style.css")[0]


def _harmless(value: object) -> object:
    """What can't be seen, or turns what can be seen around, is a question mark; the template escapes the rest."""
    if not isinstance(value, str) or isinstance(value, Markup):
        return value
    cut = f"{value[:CHARACTERS]} ..." if len(value) > CHARACTERS else value
    return visible(cut)


def _verdict(judged: str) -> str:
    """A class of the style sheet: what stands before the reason, if it is one."""
    word = judged.partition(":")[0].replace(" ", "-")
    return word if word.isascii() and word.replace("-", "").isalpha() else "unknown"


def _paths(layers: Sequence[str]) -> list[tuple[str, str]]:
    """(class, path of an SVG) per sign: a run of blocks of one layer is a bar."""
    bars: dict[str, list[str]] = {sign: [] for sign in _SIGNS}
    for y, layer in enumerate(layers):
        x = 0
        for sign, run in groupby(layer):
            width = len(list(run))
            bars[sign].append(f"M{x} {y}h{width}v1h-{width}z")
            x += width
    return [(_SIGNS[sign], "".join(found)) for sign, found in bars.items() if found]


def _data_url(svg: str) -> Markup:
    """Base64, since that is nothing but letters to whoever reads the page."""
    return Markup("data:image/svg+xml;base64," + base64.b64encode(svg.encode()).decode())
