"""Every link between pages leads somewhere, and every file that a page names is there."""

from __future__ import annotations

import re

import pytest
from pages import ROOT, Page, pages, problem

#: A path of the repository in code font: begins with one of its folders. What runs write (results/, nights/) is none.
_PATH = re.compile(r"^(?:\./)?(?:e2e|scripts|docs|docker|prompts|\.github|\.ci)/[\w./-]*$")
_EACH = [pytest.param(page, id=page.name) for page in pages()]


@pytest.mark.parametrize("page", _EACH)
def test_links_lead_somewhere(page: Page):
    own = [link for link in page.links if not re.match(r"[a-z]+:", link)]
    assert [f"{link}: {why}" for link in own if (why := problem(_own(link, page), beside=page.path.parent))] == []


def _own(link: str, page: Page) -> str:
    return page.path.name + link if link.startswith("#") else link


@pytest.mark.parametrize("page", _EACH)
def test_named_files_are_there(page: Page):
    named = [word for word in page.code if _PATH.match(word)]
    assert [word for word in named if not (ROOT / word).exists()] == []


@pytest.mark.parametrize("page", _EACH)
def test_named_python_is_there(page: Page):
    text = page.path.read_text(encoding="utf-8")
    assert [name for name in re.findall(r"\be2e(?:\.\w+)+(?!\.?\w|/)", text) if not _python(name)] == []


def _python(name: str) -> bool:
    """Is it a module, or a word of one? Nothing is imported: what runs inside engines needs vLLM."""
    *folders, last = name.split(".")
    inside = ROOT.joinpath(*folders)
    files = [path for path in (inside.with_suffix(".py"), inside / "__init__.py") if path.is_file()]
    if (inside / last).is_dir() or (inside / f"{last}.py").is_file():
        return True
    return any(re.search(rf"^(?:class|def) {last}\b|^{last}\b", path.read_text(), re.MULTILINE) for path in files)


@pytest.mark.parametrize("name", ["e2e.inside.no_such_module", "e2e.inside.extension.NoSuchClass"])
def test_python_that_is_not_there_is_found(name: str):
    assert not _python(name)


@pytest.mark.parametrize("page", _EACH)
def test_a_page_has_one_title_and_is_short(page: Page):
    lines = page.path.read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 300
    assert sum(token.type == "heading_open" and token.tag == "h1" for token in page.tokens) <= 1


def test_every_page_is_in_the_index():
    index = Page(ROOT / "docs" / "README.md")
    listed = {(index.path.parent / link).resolve() for link in index.links}
    assert {page.path for page in pages() if page.path.parent == index.path.parent} - listed <= {index.path}


@pytest.mark.parametrize("link", ["no-such-page.md", "docs/vllm.md#no-such-heading", "../outside"])
def test_a_link_to_nothing_is_found(link: str):
    assert problem(link, beside=ROOT)
