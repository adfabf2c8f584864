"""The command line that runs one cell of a run alone."""

from __future__ import annotations

import shlex
from collections.abc import Mapping

#: Settings of a run that a cell needs again, by their flag's name; in this order.
FLAGS = ("connector", "attach", "model", "device", "lengths")
DEFAULTS = {"connector": "embedded", "model": "smollm2", "device": "auto"}


def reproduce(cell: Mapping[str, object], settings: Mapping[str, object]) -> str:
    """``cell``: its settings, ``settings``: what the user asked for in the run."""
    words = ["./scripts/canary"]
    axes = ",".join(f"{axis}={value}" for axis, value in cell.items() if axis != "connector")
    if axes:
        words += ["--cell", axes]
    for flag in FLAGS:
        value = settings.get(flag)
        if value in (None, "", [], ()) or value == DEFAULTS.get(flag):
            continue
        words += [f"--{flag}", ",".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)]
    if settings.get("strict") is True:
        words.append("--strict")
    return shlex.join(words)
