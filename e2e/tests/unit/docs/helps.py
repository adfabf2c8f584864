"""What the command line says of itself."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from functools import cache

from pages import ROOT

FLAG = re.compile(r"--[a-z][a-z0-9-]*")


@cache
def help_of(command: str) -> str:
    words = [sys.executable, "-m", "e2e.cli", *command.split(), "--help"]
    environment = {**os.environ, "COLUMNS": "200", "NO_COLOR": "1", "PYTHONPATH": str(ROOT)}
    return subprocess.run(words, capture_output=True, text=True, check=True, timeout=60, env=environment).stdout


def commands() -> list[str]:
    """All of them, as the first help lists them."""
    listed = help_of("").partition("Commands")[2]
    return re.findall(r"^[^\w-]*([a-z]+) {2,}\S", listed, re.MULTILINE)


def flags_of(command: str) -> list[str]:
    """In the order of its help; ``--no-digests`` is a word of ``--digests``."""
    first = re.findall(r"^\W{0,3}(--[a-z][a-z0-9-]*)", help_of(command), re.MULTILINE)
    return [flag for flag in first if flag not in ("--help", "--version")]
