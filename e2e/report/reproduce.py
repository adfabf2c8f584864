"""The command line that runs one cell of a run alone."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence

#: Flags of the run that the cell's own settings stand for, or that would touch the run's folder.
OWN_FOLDER = {"--resume"}
OWN_VALUE = {"--grid", "--cell", "--out"}
#: Settings that may come from the environment, so that the command line does not show them.
QUIET = {"connector": "embedded", "model": "smollm2"}


def reproduce(cell: Mapping[str, object], settings: Mapping[str, object]) -> str:
    """``cell``: its settings, ``settings``: those of the run, with the words of its command line as ``argv``."""
    argv = settings.get("argv")
    words = kept(list(map(str, argv))) if isinstance(argv, (list, tuple)) else []
    for name, default in QUIET.items():
        value = settings.get(name)
        given = any(word.split("=")[0] == f"--{name}" for word in words)
        if value is not None and value != default and not given and not settings.get("attach"):
            words += [f"--{name}", str(value)]
    axes = ",".join(f"{axis}={value}" for axis, value in cell.items() if axis != "connector")
    return shlex.join(["./scripts/canary", *(["--cell", axes] if axes else []), *words])


def kept(argv: Sequence[str]) -> list[str]:
    """The words of a command line that another run of one of its cells needs too."""
    words: list[str] = []
    skip = False
    for word in argv[1:] if argv[:1] == ["run"] else argv:
        flag, equals, _ = word.partition("=")
        if skip or flag in OWN_FOLDER:
            skip = False
        elif flag in OWN_VALUE:
            skip = not equals
        else:
            words.append(word)
    return words
