"""The file of ``--program``: one program as JSON, as a recording has it (``base.program.plainly``)."""

from __future__ import annotations

import re

import msgspec
from pydantic import AfterValidator

from e2e.base.program import Program, plainly, program_of
from e2e.grid.axes import axis
from e2e.regular import read_text
from e2e.settings.parsers import path

_WORD = re.compile(r"[A-Za-z0-9_]+")
_CURE = "give a file of maru-e2e shrink"


def read(given: str) -> dict[str, object]:
    """Raises ValueError with the cause and the cure; SettingsError for an axis or a value that there is not."""
    try:
        found = program_of(msgspec.json.decode(read_text(path(given))))
    except OSError as error:
        raise ValueError(f"{given!r} can't be read ({error.strerror}).") from error
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{given!r} is no program ({error}); {_CURE}.") from error
    if not found.sends:
        raise ValueError(f"{given!r} sends nothing, so there is nothing to judge; {_CURE}.")
    for what, name in _names(found):
        if not _WORD.fullmatch(name):
            raise ValueError(f"{given!r}: the {what} {name!r} is no word of letters, digits and '_'.")
    if any(text.tokens < 1 for text in found.texts):
        raise ValueError(f"{given!r}: a text has no tokens; {_CURE}.")
    for differs in (*found.sites, *found.sends):
        for name, value in differs.settings.items():
            axis(name).parse(value)
    return plainly(found)


def _names(program: Program) -> list[tuple[str, str]]:
    """What becomes a part of ids and file names."""
    sites = [("site", site.name) for site in program.sites]
    stores = [("store", site.store) for site in program.sites if site.store is not None]
    return [("scenario", program.scenario), *sites, *stores, *(("step", send.name) for send in program.sends)]


def _buildable(table: dict[str, object] | None) -> dict[str, object] | None:
    if table is not None:
        program_of(table)
    return table


#: Of a value that may come from a recording.
BUILDABLE = AfterValidator(_buildable)
