"""The repository's Markdown pages, read as GitHub reads them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token

ROOT = Path(__file__).parents[4]
_FOLDERS = ("docs", "e2e", "docker", "scripts", "prompts", ".github")
_MARKDOWN = MarkdownIt("commonmark").enable("table")


@dataclass(frozen=True)
class Page:
    path: Path

    @property
    def name(self) -> str:
        return str(self.path.relative_to(ROOT))

    @property
    def tokens(self) -> list[Token]:
        return _MARKDOWN.parse(self.path.read_text(encoding="utf-8"))

    @property
    def anchors(self) -> set[str]:
        """What a link may name after ``#``: a heading in lower case, blanks as hyphens, without punctuation."""
        found: set[str] = set()
        for opened, inline in zip(self.tokens, self.tokens[1:], strict=False):
            if opened.type != "heading_open":
                continue
            text = "".join(child.content for child in inline.children or ())
            anchor, number = re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-"), 0
            while (unique := f"{anchor}-{number}" if number else anchor) in found:
                number += 1
            found.add(unique)
        return found

    @property
    def links(self) -> Iterator[str]:
        for token in self._inline():
            if token.type in ("link_open", "image"):
                yield str(token.attrs.get("href") or token.attrs.get("src"))

    @property
    def code(self) -> Iterator[str]:
        """Words in code font."""
        for token in self._inline():
            if token.type == "code_inline":
                yield token.content

    @property
    def blocks(self) -> Iterator[tuple[str, str]]:
        """(language, text) of each block of code."""
        for token in self.tokens:
            if token.type in ("fence", "code_block"):
                yield token.info.strip(), token.content

    @property
    def tables(self) -> Iterator[list[tuple[str, ...]]]:
        """Each as rows of plain text, its head first."""
        table: list[tuple[str, ...]] = []
        row: list[str] = []
        for token in self.tokens:
            if token.type == "table_open":
                table = []
            elif token.type == "tr_open":
                row = []
            elif token.type == "inline" and token.level > 3:
                row.append("".join(child.content for child in token.children or ()))
            elif token.type == "tr_close":
                table.append(tuple(row))
            elif token.type == "table_close":
                yield table

    def _inline(self) -> Iterator[Token]:
        for token in self.tokens:
            yield from token.children or ()


def pages() -> list[Page]:
    found = [*ROOT.glob("*.md"), *(path for folder in _FOLDERS for path in (ROOT / folder).rglob("*.md"))]
    return [Page(path) for path in sorted(found)]


def problem(target: str, *, beside: Path) -> str | None:
    """Why ``path#anchor`` leads nowhere, seen from a folder; None when it leads somewhere."""
    path, _, anchor = target.partition("#")
    found = (beside / path).resolve()
    if not found.exists():
        return f"{path} does not exist"
    if not found.is_relative_to(ROOT):
        return f"{path} is outside the repository"
    if anchor and anchor not in Page(found).anchors:
        return f"{path} has no heading #{anchor}"
    return None
