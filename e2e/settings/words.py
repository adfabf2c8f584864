"""From the words of a command line to values; each raises SettingsError with one sentence."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path
from urllib.parse import urlsplit

from pydantic import SecretStr

from e2e.base.errors import SettingsError
from e2e.grid.selection import GRIDS, Product, parse_grid

try:
    import tomllib
except ModuleNotFoundError:  # Python 3.10
    import tomli as tomllib

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(?:I?B)?", re.IGNORECASE)


def grid(word: str) -> tuple[Product, ...]:
    """A grid's name, or a TOML file."""
    if word in GRIDS:
        return GRIDS[word]
    if not word.endswith(".toml"):
        close = get_close_matches(word, GRIDS, n=1)
        hint = f"did you mean {close[0]}? " if close else ""
        raise SettingsError(f"--grid: {word!r} is unknown; {hint}Use {', '.join(GRIDS)} or a FILE.toml.")
    try:
        content = tomllib.loads(Path(word).read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingsError(
            f"--grid: {word} can't be read ({error.strerror}); give {', '.join(GRIDS)} or a file."
        ) from error
    except ValueError as error:
        raise SettingsError(f"--grid: {word} is no TOML ({error}).") from error
    return parse_grid(content, source=word)


def lengths(word: str, *, flag: str = "--lengths") -> tuple[int, ...]:
    """``385,1041``: prompt lengths in tokens, or another list of numbers."""
    parts = [part.strip() for part in word.split(",")]
    bad = [part for part in parts if not (part.isascii() and part.isdigit())]
    if bad:
        example = f"tokens; write {flag} 385,1041." if flag == "--lengths" else f"requests; write {flag} 1,8."
        raise SettingsError(f"{flag}: {bad[0]!r} is no number of {example}")
    return tuple(int(part) for part in parts)


def size(flag: str, word: str) -> int:
    """``2G`` -> bytes; K, M, G, T to the base 1024, as Maru reads sizes."""
    match = _SIZE.fullmatch(word.strip())
    found = int(float(match[1]) * 1024 ** " KMGT".index(match[2].upper() or " ")) if match else 0
    if found < 1:
        raise SettingsError(f"{flag}: {word!r} is no size; write bytes, or a number with K, M, G or T, such as 2G.")
    return found


def url(word: str) -> str:
    """An engine's address without a path, as ``http://host:port``."""
    try:
        parts = urlsplit(word)
        port = parts.port
    except ValueError as error:
        raise SettingsError(f"--attach: {word!r} is no address ({error}); write http://127.0.0.1:8000.") from error
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment or port == 0:
        raise SettingsError(f"--attach: {word!r} is no address; write http://127.0.0.1:8000.")
    return word.rstrip("/")


def address(word: str) -> str:
    """``tcp://host:port`` or ``host:port``, as ``host:port``."""
    host, colon, port = word.removeprefix("tcp://").rpartition(":")
    if not (colon and host and port.isascii() and port.isdigit() and 0 < int(port) < 65536 and "/" not in host):
        raise SettingsError(f"--connector-server: {word!r} is no address; write 127.0.0.1:5555.")
    return f"{host}:{port}"


def launcher(word: str) -> str:
    if word not in ("process", "docker"):
        raise SettingsError(f"--launcher: {word!r} is unknown; use process or docker.")
    return word


def positive(flag: str, number: float) -> float:
    if not 0 < number < float("inf"):
        raise SettingsError(f"{flag}: {number:g} is too small or too large; give a number above 0.")
    return number


def key(word: str) -> SecretStr:
    """What an HTTP header can carry: printable ASCII without blanks."""
    if not (word and word.isascii() and word.isprintable() and " " not in word):
        raise SettingsError("--api-key: it is empty or has a character that no HTTP header takes; give it as it is.")
    return SecretStr(word)


def redacted(argv: Sequence[str]) -> tuple[str, ...]:
    """A command line without its key, for recordings and reports."""
    shown: list[str] = []
    for number, word in enumerate(argv):
        if number and argv[number - 1] == "--api-key":
            shown.append("...")
        else:
            shown.append("--api-key=..." if word.startswith("--api-key=") else word)
    return tuple(shown)


def folder(word: str) -> Path:
    """The absolute path of a folder with at least one text."""
    where = Path(word).absolute()
    if not where.is_dir():
        raise SettingsError(f"--prompts-dir: {word} is no folder; give one with texts (*.txt).")
    if next(where.glob("*.txt"), None) is None:
        raise SettingsError(f"--prompts-dir: {word} has no text; put at least one *.txt into it.")
    return where


def python(word: str) -> Path:
    """The absolute path of an interpreter. Its link is kept: a virtual environment's Python is one."""
    found = shutil.which(word)
    if found is None:
        raise SettingsError(f"--engine-python: {word} is no program that can be run; give a Python that has vLLM.")
    return Path(os.path.abspath(found))
