"""Where a setting came from: a flag, else its variable, else the ``--config`` file; and what is said of a wrong one.

The first two are cyclopts' own; ``SOURCES`` are its steps after them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import TypeVar

import cyclopts
from cyclopts import Token
from cyclopts.argument import Argument, ArgumentCollection
from pydantic import ValidationError

from e2e.base.errors import SettingsError
from e2e.settings import words
from e2e.settings.flags import PREFIX, Flags

Read = TypeVar("Read", bound=Flags)
#: Variables of the rig that are no flags: what it tells its engines and its own checks.
OWN_VARIABLES = ("MARU_E2E_RUN", "MARU_E2E_ENGINE", "MARU_E2E_CHECK")


def without_empty(app: cyclopts.App, commands: Sequence[str], arguments: ArgumentCollection) -> None:
    """An empty variable is none: compose files and workflows can't leave one out."""
    for argument in arguments:
        argument.tokens = [token for token in argument.tokens if token.source != "env" or token.value]


def from_file(app: cyclopts.App, commands: Sequence[str], arguments: ArgumentCollection) -> None:
    """What the file of ``--config`` says of flags that nobody gave. SettingsError for a key that is no flag."""
    flags = {argument.name.removeprefix("--"): argument for argument in arguments if argument.name.startswith("--")}
    if "config" not in flags or not flags["config"].tokens:
        return
    given = flags["config"].tokens[-1]
    try:
        content = words.toml(Path(given.value))
    except ValueError as error:
        raise SettingsError(f"{_name(given)}: {error}") from error
    for key, value in content.items():
        argument = flags.get(key.replace("_", "-"))
        if argument is None or key == "config":
            command = " ".join(commands)
            known = [name for name in flags if name != "config"]
            raise SettingsError(f"{given.value}: {key} is no setting of {command}; {_meant(key, known)}")
        if isinstance(value, dict):
            raise SettingsError(f"{given.value}: {key} is a table; give {key} = value.")
        if not argument.tokens:
            for number, item in enumerate(value if isinstance(value, list) else [value]):
                argument.append(Token(keyword=key, value=str(item), source=given.value, index=number))


SOURCES: tuple[Callable, ...] = (without_empty, from_file)


def unknown_variables(environ: Mapping[str, str], known: Iterable[str]) -> str | None:
    """One sentence about variables that look like the rig's and are none, else None."""
    known = [*known]
    odd = [name for name in sorted(environ) if name.startswith(PREFIX) and name not in {*known, *OWN_VARIABLES}]
    if not odd:
        return None
    close = get_close_matches(odd[0], known, n=1)
    hint = f"; did you mean {close[0]}?" if close else "; every flag has one, such as MARU_E2E_MAX_TOKENS."
    return f"{', '.join(odd)} {'is' if len(odd) == 1 else 'are'} no variable of the rig{hint}"


def refusal(error: cyclopts.CycloptsError) -> str:
    """The sentence about a command line that can't be read."""
    cause = error.__cause__
    if isinstance(cause, ValidationError) and error.argument:
        return sentence(cause, lambda field: _where(error.argument, field))
    if isinstance(error, cyclopts.UnknownOptionError):
        word = (error.token.keyword or error.token.value).split("=")[0]
        known = [name for argument in error.argument_collection for name in argument.names]
        return f"{word} is unknown; {_meant(word, [name for name in known if name.startswith('--')])}"
    if isinstance(error, cyclopts.UnknownCommandError) and error.unused_tokens and error.app:
        commands = [name for name in error.app if not name.startswith("-")]
        return words.unknown(error.unused_tokens[0], commands).replace("is unknown", "is no command", 1)
    if isinstance(error, cyclopts.MissingArgumentError) and error.argument:
        return f"{error.keyword or error.argument.name} is missing a value; see --help of the command."
    if isinstance(error, cyclopts.UnusedCliTokensError) and error.unused_tokens:
        return f"{error.unused_tokens[0]!r} is one word too many; see --help of the command."
    if isinstance(error, cyclopts.RepeatArgumentError):
        return f"{_name(error.token)} stands twice; give it once."
    if isinstance(error, cyclopts.CoercionError) and error.token:
        return f"{_name(error.token)}: {error.token.value!r} can't be used; see --help of the command."
    return " ".join(str(error).split())


def sentence(error: ValidationError, where: Callable[[str], str]) -> str:
    """The first thing that pydantic refuses; ``where``: a field -> the name that the user gave its value by."""
    first = error.errors()[0]
    said = str(first["msg"]).removeprefix("Value error, ")
    return f"{where(str(first['loc'][0]))}: {said}"


def read(flags: type[Read], values: Mapping[str, object], *, where: Callable[[str], str] = str) -> Read:
    """Words that stand somewhere else than on a command line. Raises SettingsError with one sentence."""
    try:
        return flags.model_validate(values)
    except ValidationError as error:
        raise SettingsError(sentence(error, where)) from error


def _where(parent: Argument, field: str) -> str:
    for child in parent.children:
        if child.keys == (field,) and child.tokens:
            return _name(child.tokens[0])
    return field


def _name(token: Token) -> str:
    """``--max-tokens``, ``MARU_E2E_MAX_TOKENS`` or ``run.toml: max-tokens``."""
    return str(token.keyword) if token.source in ("cli", "env") else f"{token.source}: {token.keyword}"


def _meant(word: str, known: Sequence[str]) -> str:
    close = get_close_matches(word.replace("_", "-"), known, n=1, cutoff=0.7)
    return f"did you mean {close[0]}?" if close else f"use {', '.join(known)}."
