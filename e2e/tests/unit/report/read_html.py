"""What every page must be, as an HTML parser reads it."""

from __future__ import annotations

import base64
import hashlib
import re
import unicodedata
import xml.etree.ElementTree as xml
from html.parser import HTMLParser

#: What our templates write, and nothing else.
TAGS = {
    "html", "head", "meta", "title", "style", "body", "main", "h1", "h2", "h3", "h4", "p", "strong", "ul", "li", "a",
    "code", "pre", "div", "span", "table", "thead", "tbody", "tr", "th", "td", "details", "summary", "figure",
    "figcaption", "svg", "path", "img",
}  # fmt: skip
ATTRIBUTES = {
    "lang", "charset", "http-equiv", "content", "name", "class", "id", "href", "role", "aria-label", "tabindex", "open",
    "scope", "src", "alt", "viewbox", "width", "height", "preserveaspectratio", "shape-rendering", "d",
}  # fmt: skip
#: What matplotlib draws by.
DRAWN = {"svg", "style", "metadata", "RDF", "Work", "type", "format", "date", "creator", "Agent", "title", "defs", "g",
         "path", "use", "text", "tspan", "clipPath", "rect"}  # fmt: skip
VOID = {"meta", "img", "path"}
CSP = "default-src 'none'; style-src 'sha256-{}'; img-src data:; base-uri 'none'; form-action 'none'"


class _Read(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.words: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert len({name for name, _ in attrs}) == len(attrs), attrs
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    def handle_comment(self, data: str) -> None:
        raise AssertionError(f"a comment: {data}")

    handle_pi = unknown_decl = handle_comment

    def text(self) -> str:
        return "".join(self.words)


def parsed(page: str) -> _Read:
    read = _Read()
    read.feed(page)
    read.close()
    assert read.open == []
    return read


def assert_drawing(svg: str) -> None:
    """Well-formed, nothing but shapes and words, and no reference but to itself."""
    for element in xml.fromstring(svg).iter():
        assert element.tag.rpartition("}")[2] in DRAWN, element.tag
        for name, value in element.attrib.items():
            assert not name.lower().startswith("on")
            assert not name.endswith("href") or value.startswith("#")


def assert_self_contained(page: str, *, others: tuple[str, ...] = ()) -> _Read:
    """Nothing but our own elements, nothing that loads or runs anything, no character that can't be seen, links within
    the page or to the ``others``."""
    assert len(page.encode()) < 2_000_000
    bad = {c for c in page if c != "\n" and unicodedata.category(c) in ("Cc", "Cf", "Cs", "Zl", "Zp")}
    assert not bad, bad
    read = parsed(page)
    assert {tag for tag, _ in read.tags} <= TAGS
    ids = [attrs["id"] for _, attrs in read.tags if "id" in attrs]
    assert len({*ids}) == len(ids)
    for tag, attrs in read.tags:
        assert attrs.keys() <= ATTRIBUTES, (tag, attrs)
        if "src" in attrs:
            found = re.fullmatch(r"data:image/svg\+xml;base64,([A-Za-z0-9+/=]+)", attrs["src"] or "")
            assert found
            assert_drawing(base64.b64decode(found[1]).decode())
        if "href" in attrs:
            assert attrs["href"] in others or (attrs["href"] or "#").removeprefix("#") in ids, attrs
        if tag == "path":
            assert re.fullmatch(r"[Mhvz0-9 -]+", attrs["d"] or "")
        if tag in ("details", "div", "span", "td", "th", "svg", "a"):
            assert re.fullmatch(r"[a-z ]*", attrs.get("class") or "")
    (style,) = re.findall(r"<style>(.*?)</style>", page, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policies = [attrs["content"] for _, attrs in read.tags if "http-equiv" in attrs]
    assert policies == [CSP.format(digest)]
    assert "url(" not in style
    assert "@import" not in style
    return read
