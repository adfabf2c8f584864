"""Programs that a connector brings: they lie beside the engine's Python, whose ``bin`` need not be on PATH."""

from __future__ import annotations

import shutil
from pathlib import Path


def program(name: str, *, python: str) -> str | None:
    """Where it is, beside ``python`` first, then on PATH; None when it is in neither."""
    return shutil.which(name, path=str(Path(python).parent)) or shutil.which(name)
