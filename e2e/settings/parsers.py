"""From the words of a command line, a variable or a file to values. Each raises ValueError or SettingsError with the
cause and the cure; who called says where the word came from."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from urllib.parse import urlsplit

from pydantic import BeforeValidator, SecretStr, ValidationInfo

from e2e.base.errors import SettingsError
from e2e.base.spelling import either, hint, meant
from e2e.connectors.table import load
from e2e.faults.catalogue import find
from e2e.faults.cells import NONE
from e2e.grid.axes import Value, axis
from e2e.grid.selection import GRIDS, Product, parse_cell, parse_grid
from e2e.regular import read_text
from e2e.scenarios.packs import PACKS
from e2e.scenarios.table import SCENARIOS
from e2e.settings.quantities import whole

try:
    import tomllib
except ModuleNotFoundError:  # Python 3.10
    import tomli as tomllib

#: Context of a validation whose values are no words any more: those of a recording, or read already.
READ = "read"


def word(parse: Callable[[str], object]) -> BeforeValidator:
    """Reads the one word of a setting."""

    def one(given: Sequence[str]) -> object:
        if len(given) != 1:
            raise ValueError("it takes one value; give it once.")
        return parse(given[0])

    return _read(one)


def words(parse: Callable[[Sequence[str]], object]) -> BeforeValidator:
    """Reads all the words of a setting that takes several, together."""
    return _read(parse)


def each(parse: Callable[[str], object]) -> BeforeValidator:
    """Reads each of the words of a setting that takes several."""
    return _read(lambda given: tuple(parse(word) for word in given))


def _read(parse: Callable[[Sequence[str]], object]) -> BeforeValidator:
    """What is no word, or no list of words, is a value already, such as a default."""

    def validate(given: object, info: ValidationInfo) -> object:
        listed = given if isinstance(given, (list, tuple)) else [given]
        if info.context == READ or not listed or not all(isinstance(item, str) for item in listed):
            return given
        try:
            return parse(listed)
        except SettingsError as error:
            raise ValueError(str(error)) from error

    return BeforeValidator(validate)


def toml(path: Path) -> dict[str, object]:
    """The content of a TOML file."""
    try:
        return tomllib.loads(read_text(path))
    except OSError as error:
        raise ValueError(f"{str(path)!r} can't be read ({error.strerror}).") from error
    except ValueError as error:
        raise ValueError(f"{str(path)!r} is no TOML ({error}).") from error


def json_object(given: str) -> Path:
    """The absolute path of a file that holds one."""
    where = Path(given).absolute()
    try:
        content = json.loads(read_text(where))
    except OSError as error:
        raise ValueError(f"{given!r} can't be read ({error.strerror}).") from error
    except ValueError as error:
        raise ValueError(f"{given!r} is no JSON ({error}).") from error
    if not isinstance(content, dict):
        raise ValueError(f"{given!r} holds no JSON object; write one, such as {{}}.")
    return where


def grid(given: str) -> tuple[Product, ...]:
    """A grid's name, or a TOML file."""
    if given in GRIDS:
        return GRIDS[given]
    if not given.endswith(".toml"):
        raise ValueError(f"{given!r} is unknown; {hint(given, (*GRIDS, 'a FILE.toml'))}")
    return parse_grid(toml(Path(given)), source=given)


def cell(given: str) -> dict[str, Value]:
    return parse_cell(given)


def fault(given: str) -> str:
    if given != NONE:
        find(given)
    return given


def faults(given: Sequence[str]) -> tuple[str, ...]:
    """Names, or ``none`` alone."""
    names = tuple(map(fault, given))
    if NONE in names and {*names} != {NONE}:
        raise SettingsError(f"{NONE} plants nothing, and other faults are named beside it; drop one or the other.")
    return names


def scenario(given: str) -> str:
    """The name of a story, or of a pack of them."""
    if given not in SCENARIOS and given not in PACKS:
        raise SettingsError(f"scenario {given!r} is unknown; {hint(given, [*SCENARIOS, *PACKS])}")
    return given


def connector(given: str) -> str:
    """The name of an adapter, or the absolute path of a file."""
    load(given)
    return str(Path(given).resolve()) if given.endswith(".toml") else given


def one_of(*known: str) -> BeforeValidator:
    def parse(given: str) -> str:
        if given not in known:
            raise ValueError(f"{given!r} is unknown; use {either(known)}.")
        return given

    return word(parse)


def numbers(example: str) -> BeforeValidator:
    """``385,1041``, or as many words; ``example`` shows how, with its unit."""

    def parse(given: Sequence[str]) -> tuple[int, ...]:
        parts = [part.strip() for item in given for part in item.split(",")]
        for part in parts:
            if not (part.isascii() and part.isdigit()):
                raise ValueError(f"{part!r} is no number of {example}.")
            if int(part) < 1:
                raise ValueError(f"{part} is too small; give numbers from 1 on.")
        return tuple(int(part) for part in parts)

    return _read(parse)


def comparison() -> BeforeValidator:
    """An axis and two values of it."""

    def parse(given: Sequence[str]) -> tuple[str, ...]:
        if len(given) != 3:
            raise ValueError("give an axis and two values of it, such as placement index kernel.")
        return given[0], *(str(axis(given[0]).parse(value)) for value in given[1:])

    return _read(parse)


def shard(given: str) -> tuple[int, int]:
    """``i/n``: the i-th of n shares, from 1 on."""
    number, slash, of = given.partition("/")
    if not slash:
        raise ValueError(f"{given!r} is no share; write 2/4 for the second of four.")
    shares = whole(of), whole(number)
    if shares[1] > shares[0]:
        raise ValueError(f"{given!r} is no share of {shares[0]}; give 1/{shares[0]} to {shares[0]}/{shares[0]}.")
    return shares[1], shares[0]


def at_least(least: int) -> BeforeValidator:
    return word(lambda given: whole(given, least=least))


def switch(given: str) -> bool:
    """On a command line a switch has no word; in a variable or a file it has one of these."""
    known = {"true": True, "on": True, "yes": True, "1": True, "false": False, "off": False, "no": False, "0": False}
    if given.lower() not in known:
        raise ValueError(f"{given!r} is neither true nor false; write one of the two.")
    return known[given.lower()]


def url(given: str) -> str:
    """An engine's address without a path, as ``http://host:port``."""
    try:
        parts = urlsplit(given)
        port = parts.port
    except ValueError as error:
        raise ValueError(f"{given!r} is no address ({error}); write http://127.0.0.1:8000.") from error
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment or port == 0:
        raise ValueError(f"{given!r} is no address; write http://127.0.0.1:8000.")
    return given.rstrip("/")


def address(given: str) -> str:
    """``tcp://host:port`` or ``host:port``, as ``host:port``."""
    host, colon, port = given.removeprefix("tcp://").rpartition(":")
    if not (colon and host and port.isascii() and port.isdigit() and 0 < int(port) < 65536 and "/" not in host):
        raise ValueError(f"{given!r} is no address; write 127.0.0.1:5555.")
    return f"{host}:{port}"


def some(what: str) -> BeforeValidator:
    """Any word but an empty one; ``what`` says what is missing then."""

    def parse(given: str) -> str:
        if not given.strip():
            raise ValueError(f"it is empty; give {what}, or leave it out.")
        return given

    return word(parse)


def attention(given: str) -> str:
    """One of the rig's two words, or the name of a backend as vLLM writes it."""
    if given in ("strided", "stock") or re.fullmatch(r"[A-Z][A-Z0-9_]*", given):
        return given
    known = ("strided", "stock", "FLASH_ATTN", "FLASHINFER", "TRITON_ATTN", "TORCH_SDPA", "CPU_ATTN")
    close = meant(given, known)
    cure = f"did you mean {close}?" if close else "use strided, stock, or a backend as vLLM writes it: FLASH_ATTN."
    raise ValueError(f"{given!r} is unknown; {cure}")


def model(given: str) -> str:
    """A hub id as it is, a folder by its absolute path."""
    if not given.strip():
        raise ValueError("it is empty; give a model folder or a hub id, or leave it out.")
    return str(Path(given).resolve()) if Path(given).is_dir() else given


def key(given: str) -> SecretStr:
    """What an HTTP header can carry: printable ASCII without blanks."""
    if not (given and given.isascii() and given.isprintable() and " " not in given):
        raise ValueError("it is empty or has a character that no HTTP header takes; give it as it is.")
    return SecretStr(given)


def key_file(given: str) -> SecretStr:
    """The key that is all that a file holds, but for blanks around it."""
    try:
        return key(read_text(Path(given)).strip())
    except OSError as error:
        raise ValueError(f"{given!r} can't be read ({error.strerror}); give a file that holds the key.") from error
    except UnicodeDecodeError as error:
        raise ValueError(f"{given!r} is no text; give a file that holds the key.") from error


def listen(given: str) -> tuple[str, int]:
    """``host:port``, or ``:port`` for all addresses; port 0 for a free one."""
    host, colon, port = given.strip().rpartition(":")
    if not (colon and port.isascii() and port.isdigit() and int(port) < 65536 and "/" not in host):
        raise ValueError(f"{given!r} is no address to listen at; write 127.0.0.1:9464.")
    return host.strip("[]"), int(port)


def texts(given: str) -> Path:
    """The absolute path of a folder with at least one text."""
    where = Path(given).absolute()
    if not where.is_dir():
        raise ValueError(f"{given!r} is no folder; give one with texts (*.txt).")
    if next(where.glob("*.txt"), None) is None:
        raise ValueError(f"{given!r} has no text; put at least one *.txt into it.")
    return where


def python(given: str) -> Path:
    """The absolute path of an interpreter. Its link is kept: a virtual environment's Python is one."""
    found = shutil.which(given)
    if found is None:
        raise ValueError(f"{given!r} is no program that can be run; give a Python that has vLLM.")
    return Path(os.path.abspath(found))


def path(given: str) -> Path:
    """Any place; an empty word would be the working folder."""
    if not given.strip():
        raise ValueError("it is empty; give a place, or leave it out.")
    return Path(given)


def folder(given: str) -> Path:
    """A folder to write to; it need not exist."""
    where = path(given)
    if where.exists() and not where.is_dir():
        raise ValueError(f"{given!r} is a file; give a folder.")
    return where
