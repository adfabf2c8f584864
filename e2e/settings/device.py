"""Which device the engines run on."""

from __future__ import annotations

import os
import shutil
import subprocess

import psutil

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
    return "GPU" in _asked("-L", limit_s=limit_s)


def free_bytes(device: str) -> int | None:
    """Memory that engines can have: of the GPU that has least, or of this machine. None where the driver tells none."""
    if device == "cpu":
        return psutil.virtual_memory().available
    seen = os.environ.get("CUDA_VISIBLE_DEVICES")
    which = (f"--id={seen}",) if seen else ()
    said = _asked("--query-gpu=memory.free", "--format=csv,noheader,nounits", *which, limit_s=20).split()
    return min((int(mib) << 20 for mib in said if mib.isdigit()), default=None)


def _asked(*words: str, limit_s: float) -> str:
    """What nvidia-smi says; nothing where it is not, fails or hangs."""
    command = shutil.which("nvidia-smi")
    if command is None:
        return ""
    try:
        listed = subprocess.run([command, *words], capture_output=True, text=True, timeout=limit_s, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return listed.stdout if listed.returncode == 0 else ""
