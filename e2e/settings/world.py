"""The process's environment, read here and nowhere else."""

from __future__ import annotations

import os
from pathlib import Path

from e2e.stack.owned import default_state_dir


def environment() -> dict[str, str]:
    """What engines inherit."""
    return dict(os.environ)


def state_dir() -> Path:
    """Where runs are registered, so that a later one can clean up after a killed one."""
    return default_state_dir(os.environ)
