"""uv resolves and installs for a foreign Python; a lock file's first lines say for which."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import util
from pathlib import Path

CLONE = Path(__file__).resolve().parents[2]
#: One call: a resolution, or the download of all wheels, in seconds.
LIMIT_S = 3600
_HEADER = re.compile(r"# for Python (?P<python>\S+) on (?P<platform>\S+), by scripts/bundle lock\n")


class BundleError(Exception):
    """What went wrong and what to do, in one sentence."""


@dataclass(frozen=True)
class Lock:
    """``python``: "3.12"; ``platform``: as uv names it; ``pinned``: package -> version."""

    path: Path
    python: str
    platform: str
    pinned: dict[str, str]


def refuse(why: object) -> int:
    """Says it; the exit code for what can't be used."""
    print(f"bundle: {why}", file=sys.stderr)
    return 2


def default_lock(vllm: str, python: str) -> Path:
    return Path(__file__).parent / f"vllm-{vllm}-py{python}.lock"


def header(*, python: str, platform: str, left: Sequence[str]) -> str:
    return (
        f"# for Python {python} on {platform}, by scripts/bundle lock\n# left to the host, or out: {', '.join(left)}\n"
    )


def read_lock(path: Path) -> Lock:
    """Raises BundleError for what scripts/bundle lock didn't write."""
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise BundleError(
            f"{path} can't be read; make it by scripts/bundle lock, or give another by --lock."
        ) from error
    found = _HEADER.match(text)
    pinned = dict(re.findall(r"^([A-Za-z0-9._-]+)==([^\s;]+)", text, re.MULTILINE))
    if not found or not pinned:
        raise BundleError(f"{path} is no lock of a bundle; make one by scripts/bundle lock.")
    return Lock(path, found["python"], found["platform"], pinned)


def uv(words: Sequence[str], *, given: str | None = None) -> str:
    """What it prints. Raises BundleError with the last of what it says when it fails."""
    if util.find_spec("uv") is None:
        raise BundleError(f"making a bundle needs uv; run {sys.executable} -m pip install uv.")
    try:
        ran = subprocess.run(
            [sys.executable, "-m", "uv", *words, "--python", sys.executable],
            input=given,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise BundleError(f"uv took more than {LIMIT_S} s; is the index slow?") from error
    if ran.returncode:
        raise BundleError(f"uv {words[1]} failed: {' '.join(ran.stderr.split())[-1500:].rstrip('.')}.")
    return ran.stdout
