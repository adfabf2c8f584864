"""Where a setting came from: a flag, else its variable, else the ``--config`` file; and what is said of a wrong one.

The first two are cyclopts' own; ``steps`` are those after them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

import cyclopts
from cyclopts import Token
from cyclopts.argument import Argument, ArgumentCollection
from pydantic import ValidationError

from e2e.base.errors import SettingsError
from e2e.base.spelling import hint, meant
from e2e.settings import parsers
from e2e.settings.flags import PREFIX, Flags

Read = TypeVar("Read", bound=Flags)
#: Variables of the rig that are no flags: what it tells its engines, its checks and its tests.
OWN_VARIABLES = ("MARU_E2E_RUN", "MARU_E2E_ENGINE", "MARU_E2E_CHECK", "MARU_E2E_TEST_SETUP")

SEE_HELP = "see --help of the command."


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
        content = parsers.toml(parsers.path(given.value))
    except ValueError as error:
        raise SettingsError(f"{_name(given)}: {error}") from error
    for key, value in content.items():
        argument = flags.get(key.replace("_", "-"))
        if argument is None or key == "config":
            command = " ".join(commands)
            known = [name for name in flags if name != "config"]
            raise SettingsError(f"{given.value}: {key} is no setting of {command}; {hint(key, known)}")
        if isinstance(value, dict):
            raise SettingsError(f"{given.value}: {key} is a table; give {key} = value.")
        if isinstance(value, list) and argument.token_count() == (1, False):
            raise SettingsError(f"{given.value}: {key} takes one value; give no list.")
        if not argument.tokens:
            for number, item in enumerate(value if isinstance(value, list) else [value]):
                argument.append(Token(keyword=key, value=str(item), source=given.value, index=number))


class Elsewhere:
    """The last step: what was not given on the command line, under the flag's name."""

    def __init__(self) -> None:
        self.given: dict[str, Argument] = {}

    def __call__(self, app: cyclopts.App, commands: Sequence[str], arguments: ArgumentCollection) -> None:
        flags = [argument for argument in arguments if argument.name.startswith("--") and argument.tokens]
        self.given = {argument.name: argument for argument in flags if argument.tokens[0].source != "cli"}

    def spelled_out(self, argv: Sequence[str]) -> list[str]:
        """The command line that needs neither variables nor a file. A key stays where it is."""
        line = _without(argv, "--config")
        for name, argument in self.given.items():
            if name in ("--config", "--api-key", "--api-key-file"):
                continue
            values = [token.value for token in argument.tokens]
            if argument.parameter.n_tokens is None:  # a switch
                line += [name] if parsers.switch(values[0]) else list(argument.parameter.negative or ())
            elif argument.parameter.n_tokens > 1:
                line += [name, *values]
            else:
                line += [word for value in values for word in (name, value)]
        return line

    def explained(self, sentence: str) -> str:
        """With the place of each flag that the sentence names and nobody wrote on the command line."""
        for name, argument in self.given.items():
            place = _name(argument.tokens[0])
            if re.search(rf"{re.escape(name)}(?![\w-])", sentence) and place not in sentence:
                sentence = f"{sentence.rstrip('.')} ({name} is from {place})."
        return sentence


def steps(elsewhere: Elsewhere) -> tuple[Callable, ...]:
    return (without_empty, from_file, elsewhere)


def unknown_variables(environ: Mapping[str, str], known: Iterable[str]) -> str | None:
    """One sentence about variables that look like the rig's and are none, else None."""
    known = [*known]
    odd = [name for name in sorted(environ) if name.startswith(PREFIX) and name not in {*known, *OWN_VARIABLES}]
    if not odd:
        return None
    close = meant(odd[0], known)
    cure = f"; did you mean {close}?" if close else "; every flag has one, such as MARU_E2E_MAX_TOKENS."
    return f"{', '.join(odd)} {'is' if len(odd) == 1 else 'are'} no variable of the rig{cure}"


def refusal(error: cyclopts.CycloptsError) -> str:
    """The sentence about a command line that can't be read."""
    cause = error.__cause__
    if isinstance(cause, ValidationError) and error.argument:
        return sentence(cause, lambda field: _where(error.argument, field))
    if isinstance(error, cyclopts.UnknownOptionError):
        word = (error.token.keyword or error.token.value).split("=")[0]
        flags = [name.lstrip("-") for argument in error.argument_collection for name in argument.names]
        close = meant(word.lstrip("-"), flags)
        return f"{word} is unknown; {f'did you mean --{close}?' if close else SEE_HELP}"
    if isinstance(error, cyclopts.UnknownCommandError) and error.unused_tokens and error.app:
        commands = [name for name in error.app if not name.startswith("-") and error.app[name].show]
        return f"{error.unused_tokens[0]!r} is no command; {hint(error.unused_tokens[0], commands)}"
    if isinstance(error, cyclopts.MissingArgumentError) and error.argument:
        return f"{error.keyword or error.argument.name} is missing a value; {SEE_HELP}"
    if isinstance(error, cyclopts.UnusedCliTokensError) and error.unused_tokens:
        return f"{error.unused_tokens[0]!r} is one word too many; {SEE_HELP}"
    if isinstance(error, cyclopts.RepeatArgumentError):
        return f"{_name(error.token)} stands twice; give it once."
    if isinstance(error, cyclopts.CoercionError) and error.token:
        return f"{_name(error.token)}: {error.token.value!r} can't be used; {SEE_HELP}"
    return " ".join(str(error).split())


def sentence(error: ValidationError, where: Callable[[str], str]) -> str:
    """The first thing that pydantic refuses; ``where``: a field -> the name that the user gave its value by."""
    first = error.errors()[0]
    said = str(first["msg"]).removeprefix("Value error, ")
    if first["type"] != "value_error":
        said = f"{first['input']!r} can't be used ({said})."
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


def _without(argv: Sequence[str], flag: str) -> list[str]:
    """Without the flag and its one value."""
    kept: list[str] = []
    for number, word in enumerate(argv):
        if word != flag and not word.startswith(f"{flag}=") and not (number and argv[number - 1] == flag):
            kept.append(word)
    return kept
