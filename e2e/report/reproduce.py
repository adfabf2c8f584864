"""The command line that runs one cell of a run alone, from any folder."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from itertools import pairwise

from e2e.connectors.table import DEFAULT
from e2e.grid.axes import NO_AXES

#: Flags of the run that the cell's own settings stand for, that would touch the run's folder, or that other commands
#: than run and faults have; each with the number of its values.
LEFT_OUT = {
    "--resume": 0, "--grid": 1, "--cell": 1, "--out": 1, "--fault": 1, "--rounds": 1, "--once": 0, "--axis": 3,
    "--a": 1, "--b": 1, "--concurrency": 1, "--repeats": 1, "--scenario": 1, "--program": 1,
}  # fmt: skip
#: Settings that the run's own command line need not show, with what the command takes for them when they aren't given:
#: older recordings don't spell out variables, and a clean cell of a self-test is run again by ``run``.
QUIET = {
    "run": {"connector": DEFAULT, "model": "smollm2", "prompts": 3, "max_tokens": 8},
    "faults": {"connector": DEFAULT, "model": "smollm2", "prompts": 2, "max_tokens": 4},
}


def reproduce(cell: Mapping[str, object], run: Mapping[str, object], program: str | None = None) -> str:
    """``cell``: its settings. ``run``: as in report.json; its ``program`` and ``folder`` say where its words, and the
    files that they name, are to be found. ``program``: file of the program to play instead of what was played."""
    settings = run.get("settings")
    settings = settings if isinstance(settings, Mapping) else {}
    argv = settings.get("argv")
    argv = list(map(str, argv)) if isinstance(argv, (list, tuple)) else []
    if argv[:1] == ["shrink"]:  # its cells are steps of one search
        return _there(run, shlex.join([*_program(run), *argv]))
    words, program = kept(argv), program or _value(argv, "--program")
    fault, scenario = cell.get("fault"), cell.get("scenario")
    name = "faults" if fault else "run"
    words += _quiet(name, settings, {word.partition("=")[0] for word in words})
    if scenario == "soak":
        words += _drawn(settings, words)
    axes = ",".join(f"{axis}={value}" for axis, value in cell.items() if axis not in NO_AXES)
    command = [*_program(run), name, *(["--cell", axes] if axes else [])]
    command += ["--program", program] if program else ["--scenario", str(scenario)] if scenario else []
    return _there(run, shlex.join([*command, *(["--fault", str(fault)] if fault else []), *words]))


def _drawn(settings: Mapping[str, object], words: Sequence[str]) -> list[str]:
    """What its story was drawn by, also where nobody said it."""
    known, given = {"--seed": "seed", "--for": "for_s"}, {word.partition("=")[0] for word in words}
    told = {flag: settings[name] for flag, name in known.items() if flag not in given and name in settings}
    return [word for flag, value in told.items() for word in (flag, f"{value:g}")]


def _value(argv: Sequence[str], flag: str) -> str | None:
    """The last that was given."""
    spelled = [word.removeprefix(f"{flag}=") for word in argv if word.startswith(f"{flag}=")]
    apart = [value for word, value in pairwise(argv) if word == flag]
    return next(iter([*apart[-1:], *spelled[-1:]]), None)


def _there(run: Mapping[str, object], line: str) -> str:
    folder = run.get("folder")
    return f"cd {shlex.quote(folder)} && {line}" if isinstance(folder, str) and folder else line


def _quiet(command: str, settings: Mapping[str, object], given: set[str]) -> list[str]:
    words: list[str] = []
    for name, default in QUIET[command].items():
        flag, value = "--" + name.replace("_", "-"), settings.get(name)
        of_engine = settings.get("attach") and name in ("connector", "model")
        if value is not None and value != default and flag not in given and not of_engine:
            words += [flag, str(value)]
    return words


def _program(run: Mapping[str, object]) -> list[str]:
    program = run.get("program")
    return list(map(str, program)) if isinstance(program, (list, tuple)) and program else ["maru-e2e"]


def kept(argv: Sequence[str]) -> list[str]:
    """The words of a command line that another run of one of its cells needs too."""
    words: list[str] = []
    skip = 0
    for word in argv[1:]:
        flag, equals, _ = word.partition("=")
        if skip:
            skip -= 1
        elif flag in LEFT_OUT:
            skip = 0 if equals else LEFT_OUT[flag]
        else:
            words.append(word)
    return words
