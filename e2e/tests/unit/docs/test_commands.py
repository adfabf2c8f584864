"""Every command line in a page is one that the command line takes: commands, flags, cells, scripts."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from itertools import pairwise

import pytest
from pages import ROOT, pages

from e2e.grid.selection import parse_cell

#: Scripts whose options are those of a command.
_AS_COMMAND = {"canary": "run", "nightly": "run"}
#: Scripts whose options are another program's.
_FOREIGN = {"test"}
_FLAG = re.compile(r"--[a-z][a-z0-9-]*")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=.*")


@cache
def help_of(command: str) -> str:
    words = [sys.executable, "-m", "e2e.cli", *command.split(), "--help"]
    environment = {**os.environ, "COLUMNS": "200", "NO_COLOR": "1", "PYTHONPATH": str(ROOT)}
    return subprocess.run(words, capture_output=True, text=True, check=True, timeout=60, env=environment).stdout


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
    flags = [flag for word in words if (flag := _FLAG.match(word))]
    if program == "maru-e2e":
        if not words or words[0].startswith("-"):
            text, where = help_of(""), program
        elif not re.search(rf"^\W*{re.escape(words[0])}\b", help_of(""), re.MULTILINE):
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
    missing = [f"{where} has no {flag[0]}" for flag in flags if flag[0] not in ("--help", *_FLAG.findall(text))]
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


@cache
def sources() -> str:
    folders = [(ROOT / name).rglob("*") for name in ("e2e", "scripts", "docker", ".github")]
    files = [ROOT / "compose.yaml", *(path for folder in folders for path in folder if path.suffix != ".md")]
    texts = [path.read_bytes() for path in files if path.is_file() and "tests" not in path.parts]
    return b"\n".join(texts).decode("utf-8", "replace")
