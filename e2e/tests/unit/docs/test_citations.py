"""Every document that code cites is in the repository, heading and all."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from pages import ROOT, problem

_CITED = re.compile(r"(?<![\w/.-])(?:[\w.-]+/)*[\w-]+\.md\b(?:#[\w-]+)?")
_FOLDERS = ("e2e", "scripts", "docker", ".ci", ".github")
#: What runs write; no page of the repository.
_OUTPUTS = {"report.md", "issue.md", "summary.md", "scoreboard.md", "gain.md", "placement.md", "shrunk.md"}


def sources() -> Iterator[Path]:
    for folder in _FOLDERS:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.parent == Path(__file__).parent:
                continue
            if path.is_file() and path.suffix in ("", ".py", ".sh", ".j2", ".yml", ".yaml", ".toml"):
                yield path


def cited(path: Path) -> list[str]:
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return []
    words = [word for word in _CITED.findall(text) if word.rpartition("/")[2] not in _OUTPUTS]
    # a test names files of its own
    return [word for word in words if "/" in word] if path.is_relative_to(ROOT / "e2e" / "tests") else words


def broken(words: list[str]) -> list[str]:
    """A page is named from the repository's root; a bare name may be one of docs/."""
    return [
        f"{word}: {why}"
        for word in words
        if (why := problem(word, beside=ROOT)) and ("/" in word or problem(word, beside=ROOT / "docs"))
    ]


@pytest.mark.parametrize("path", [pytest.param(p, id=str(p.relative_to(ROOT))) for p in sources() if cited(p)])
def test_cited_documents_exist(path: Path):
    assert broken(cited(path)) == []


def test_something_is_cited():
    assert sum(len(cited(path)) for path in sources()) > 15


@pytest.mark.parametrize("word", ["facts/vllm.md", "design.md", "docs/vllm.md#no-such-heading"])
def test_a_citation_of_nothing_is_found(word: str, tmp_path: Path):
    source = tmp_path / "source.py"
    source.write_text(f'"""As it stands in {word}."""\n')
    assert len(broken(cited(source))) == 1


def said(source: str) -> list[str]:
    """The texts of a module that are no docstrings."""
    nodes = list(ast.walk(ast.parse(source)))
    docstrings = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    return [str(node.value) for node in nodes if isinstance(node, ast.Constant) and id(node) not in docstrings]


def test_no_message_names_a_page_that_a_package_lacks():
    """A wheel holds no docs/."""
    modules = [path for path in (ROOT / "e2e").rglob("*.py") if not path.is_relative_to(ROOT / "e2e" / "tests")]
    assert {path.name: text for path in modules for text in said(path.read_text()) if "docs/" in text} == {}
    assert said('"""docs/a.md"""\nraise ValueError(f"see docs/b.md")') == ["see docs/b.md"]
