"""The process's environment, and where the rig itself lies; read here and nowhere else."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from e2e.base import redact
from e2e.connectors.installed import VARIABLES
from e2e.settings.flags import PREFIX
from e2e.settings.settings import Settings
from e2e.stack import interpreter
from e2e.stack.owned import default_data_dir, default_state_dir

_ROOT = Path(__file__).resolve().parents[2]


def environment() -> dict[str, str]:
    """What services beside engines inherit: all but the key of somebody's engine."""
    return {name: value for name, value in os.environ.items() if name != "MARU_E2E_API_KEY"}


def environment_for_nodes() -> dict[str, str]:
    """What engines on other machines are to see of it: variables of theirs, none of this machine's."""
    return {
        name: value
        for name, value in environment().items()
        if name.startswith(VARIABLES) and not name.startswith(PREFIX)
    }


def ray_address() -> str | None:
    """Of a Ray cluster, by Ray's own variable."""
    return os.environ.get("RAY_ADDRESS") or None


@contextmanager
def inherited(values: Mapping[str, str]) -> Iterator[None]:
    """What is started within has these variables, too."""
    before = dict(os.environ)
    os.environ.update(values)
    try:
        yield
    finally:
        for name in values:
            os.environ.pop(name)
        os.environ.update({name: before[name] for name in values if name in before})


def engine_python(given: Path | None) -> str:
    """The interpreter that starts engines. Raises SettingsError where none has what they need."""
    return interpreter.engine_python(given, environ=os.environ)


def engine_environment_folder() -> Path:
    """Where ``maru-e2e setup`` makes an environment when no other place is named."""
    return interpreter.made_by_setup(default_data_dir(os.environ)).parents[1]


def engine_candidate(given: Path | None) -> str:
    """The same, whatever it lacks."""
    return interpreter.candidate(given, environ=os.environ)


def engine_environment(python: str) -> dict[str, str]:
    """What engines of this interpreter inherit."""
    return interpreter.engine_environment(python, environ=environment())


def has_library(name: str) -> bool:
    """Can the dynamic linker find it?"""
    try:
        ctypes.CDLL(name)
    except OSError:
        return False
    return True


def state_dir() -> Path:
    """Where runs are registered, so that a later one can clean up after a killed one."""
    return default_state_dir(os.environ)


def secrets(settings: Settings) -> frozenset[str]:
    """What must not be written down: the key of the engine, and what the environment has under a secret's name."""
    return secrets_beside(settings.api_key.get_secret_value() if settings.api_key else "")


def secrets_beside(key: str) -> frozenset[str]:
    """The same with a key of an engine, which may be empty."""
    return redact.secrets({**os.environ, "api_key": key})


def program() -> list[str]:
    """The words that start this rig, from any folder."""
    script = Path(sys.argv[0])
    named = script.name == "maru-e2e" and script.is_file()
    return [str(script.absolute())] if named else [sys.executable, "-m", "maru_e2e"]


def commit(root: Path = _ROOT) -> str | None:
    """The git commit of the clone that the rig runs from, ``-dirty`` with changes; None for an installed package."""
    if not (root / ".git").exists():
        return None
    words = ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None


def models_elsewhere() -> bool:
    """Do engines fetch models from ModelScope instead of the Hugging Face hub? By vLLM's own variable."""
    return os.environ.get("VLLM_USE_MODELSCOPE", "").lower() in ("1", "true")


def shared_memory() -> Path:
    """Where pools lie: shared memory where there is any, as CXL memory would be mapped; else a temporary folder."""
    shared = Path("/dev/shm")
    return shared if shared.is_dir() else state_dir()
