"""Which device the engines run on."""

from __future__ import annotations

import shutil
import subprocess

from e2e.base.errors import SettingsError


def choose(word: str) -> str:
    """ "cpu" or "cuda" for auto, cpu or cuda. Raises SettingsError for another word, or for cuda without a GPU."""
    if word not in ("auto", "cpu", "cuda"):
        raise SettingsError(f"{word!r} is unknown; use auto, cpu or cuda.")
    if word == "cpu":
        return "cpu"
    if has_gpu():
        return "cuda"
    if word == "cuda":
        raise SettingsError("no NVIDIA GPU answers here (nvidia-smi -L lists none); use --device cpu.")
    return "cpu"


def has_gpu(*, limit_s: float = 20) -> bool:
    """Does the driver list a GPU? Asked without torch, which the rig never imports."""
    command = shutil.which("nvidia-smi")
    if command is None:
        return False
    try:
        listed = subprocess.run([command, "-L"], capture_output=True, text=True, timeout=limit_s, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return listed.returncode == 0 and "GPU" in listed.stdout
