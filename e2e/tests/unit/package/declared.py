"""What the rig declares that it needs."""

from __future__ import annotations

import importlib.metadata
import os
import re
from pathlib import Path

from packaging.requirements import Requirement

try:
    import tomllib
except ModuleNotFoundError:  # Python 3.10
    import tomli as tomllib

ROOT = Path(__file__).parents[4]


def needed(*extras: str) -> set[str]:
    """Distributions that ``pip install maru-e2e[extras]`` brings, by this tree's pyproject.toml and, for what these
    need themselves, by what is installed here."""
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    found: set[str] = set()
    todo = [Requirement("maru-e2e" + (f"[{','.join(extras)}]" if extras else ""))]
    while todo:
        want = todo.pop()
        if want.name == "maru-e2e":
            lines = declared["dependencies"] + [r for e in want.extras for r in declared["optional-dependencies"][e]]
        else:
            lines = importlib.metadata.requires(want.name) or []
        for line in map(Requirement, lines):
            marks = [{"extra": extra} for extra in (want.extras or {""})]
            name = re.sub(r"[-_.]+", "-", line.name).lower()
            if name not in found and (line.marker is None or any(map(line.marker.evaluate, marks))):
                found.add(name)
                todo.append(line)
    return found


def linked(folder: Path, *extras: str) -> Path:
    """Fills a folder with those distributions, and no other."""
    for name in needed(*extras):
        distribution = importlib.metadata.distribution(name)
        for top in {path.parts[0] for path in distribution.files or () if path.parts[0] not in ("..", "__pycache__")}:
            if not (folder / top).exists():
                os.symlink(distribution.locate_file(top), folder / top)
    return folder
