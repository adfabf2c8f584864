"""Every command line in a page is one that the command line takes: commands, flags, cells, scripts."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from functools import cache
from itertools import pairwise

import pytest
from helps import FLAG, commands, flags_of, help_of
from pages import ROOT, Page, pages

from e2e.grid.selection import parse_cell

#: Scripts whose options are those of a command.
_AS_COMMAND = {"canary": "run", "nightly": "run"}
#: Scripts whose options are another program's.
_FOREIGN = {"test"}
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=.*")


def command_lines() -> Iterator[tuple[str, str]]:
    """(page, line) of what stands in blocks, continued lines joined, and of whole commands in code font."""
    for page in pages():
        for language, text in page.blocks:
            if language in ("", "sh", "bash", "console"):
                for line in text.replace("\\\n", " ").splitlines():
                    yield page.name, line
        for word in page.code:
            yield page.name, word


def found(line: str) -> tuple[str, list[str]] | None:
    """(program, its words) when the line runs one of ours: ``maru-e2e`` or a script."""
    try:
        words = shlex.split(line, comments=True)
    except ValueError:
        return None
    while words and (_VARIABLE.fullmatch(words[0]) or words[0] in ("$", "exec", "sudo")):
        words = words[1:]
    if words[:5] == ["docker", "compose", "run", "--rm", "rig"]:
        return "maru-e2e", words[5:] or ["run"]
    if not words:
        return None
    name = words[0].removeprefix("./").removeprefix(".venv/bin/")
    return (name, words[1:]) if name == "maru-e2e" or name.startswith("scripts/") else None


def wrong(program: str, words: list[str]) -> list[str]:
    """What of it does not exist."""
    words = [word for word in words if word not in ("...", "[options]")]
    flags = [flag for word in words if (flag := FLAG.match(word))]
    if program == "maru-e2e":
        if not words or words[0].startswith("-"):
            text, where = help_of(""), program
        elif words[0] not in commands():
            return [f"there is no command {words[0]}"]
        else:
            text, where = help_of(words[0]), f"{program} {words[0]}"
    else:
        path, name = ROOT / program, program.removeprefix("scripts/")
        if not path.is_file():
            return [f"there is no {program}"]
        if name in _FOREIGN:
            return []
        text = help_of(_AS_COMMAND[name]) if name in _AS_COMMAND else _texts(name)
        where = program
    missing = [f"{where} has no {flag[0]}" for flag in flags if flag[0] not in ("--help", *FLAG.findall(text))]
    return missing + [error for cell in cells(words) if (error := why_no_cell(cell))]


def _texts(name: str) -> str:
    """A script, and what it runs."""
    runs = (ROOT / "scripts" / "offline").rglob("*") if name == "bundle" else ()
    paths = [ROOT / "scripts" / name, *(path for path in runs if path.suffix in (".py", ".sh"))]
    return "\n".join(path.read_text(encoding="utf-8") for path in paths)


def cells(words: list[str]) -> list[str]:
    return [value for flag, value in pairwise(words) if flag == "--cell"]


def why_no_cell(text: str) -> str | None:
    if text == "axis=value,...":
        return None
    try:
        parse_cell(text)
    except Exception as error:
        return str(error)
    return None


def ours() -> list:
    runs = {(page, line): run for page, line in command_lines() if (run := found(line))}
    return [pytest.param(*run, id=f"{page}: {line.strip()}") for (page, line), run in runs.items()]


@pytest.mark.parametrize(("program", "words"), ours())
def test_commands_exist(program: str, words: list[str]):
    assert wrong(program, words) == []


def test_pages_show_commands():
    assert len(ours()) > 30


@pytest.mark.parametrize(
    "line",
    [
        "maru-e2e rnu",
        "maru-e2e run --no-such-flag",
        ".venv/bin/maru-e2e judge results/x --strict",
        "maru-e2e run --cell layout=NDH",
        "scripts/canary --no-such-flag",
        "scripts/no-such-script",
        "FOO=1 ./scripts/gpu --no-such-flag",
    ],
)
def test_a_wrong_command_is_found(line: str):
    assert len(wrong(*found(line))) == 1


@pytest.mark.parametrize("page", [pytest.param(page, id=page.name) for page in pages()])
def test_named_variables_are_read_somewhere(page):
    named = {word.partition("=")[0] for word in page.code if re.fullmatch(r"[A-Z][A-Z0-9]*_[A-Z0-9_]*(=.*)?", word)}
    assert [name for name in sorted(named) if not re.search(rf"\b{name}\b", sources())] == []


def homes() -> dict[str, set[str]]:
    """Flag -> commands that have it; ``cells`` has those of ``run``."""
    found: dict[str, set[str]] = {}
    for command in commands():
        for name in flags_of(command):
            found.setdefault(name, set()).add(command)
    assert {name for name, has in found.items() if "cells" in has} == {n for n, has in found.items() if "run" in has}
    return {name: has - {"cells"} for name, has in found.items()}


def test_every_flag_and_its_variable_has_a_row():
    """The page is read back: flag, ``--no-`` word, variables, commands."""
    told = {}
    for heading, row in table_rows("flag"):
        names, variables, has, what = (heading.split(", "), row[0].split(", "), set(row[1].split(", ")), row[2])
        assert variables[0] == "MARU_E2E_" + names[0].removeprefix("--").upper().replace("-", "_")
        assert what
        told[names[0]] = has
        for word in names:
            assert all(word in help_of(command) for command in has), word
    assert told == homes()


def table_rows(first: str) -> list[tuple[str, tuple[str, ...]]]:
    page = Page(ROOT / "docs" / "settings.md")
    return [(row[0], row[1:]) for table in page.tables if table[0][0] == first for row in table[1:]]


@cache
def sources() -> str:
    folders = [(ROOT / name).rglob("*") for name in ("e2e", "scripts", "docker", ".github")]
    files = [ROOT / "compose.yaml", *(path for folder in folders for path in folder if path.suffix != ".md")]
    texts = [path.read_bytes() for path in files if path.is_file() and not {"tests", "wheels"} & set(path.parts)]
    variables = [variable for _, row in table_rows("flag") for variable in row[0].split(", ")]
    return b"\n".join(texts).decode("utf-8", "replace") + " ".join(variables)
