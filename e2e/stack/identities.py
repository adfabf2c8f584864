"""Other identities of a model folder: adapters, and other weights of the same shape. Made once, kept beside the bundled
model."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tempfile
from pathlib import Path

from e2e.base.errors import RigError, SettingsError
from e2e.stack.model import DEFAULT_CACHE, place

_ROOT = str(Path(__file__).resolve().parents[2])
_LIMIT_S = 300


def adapter(model: str, seed: int, *, python: str = sys.executable, cache_dir: Path = DEFAULT_CACHE) -> str:
    """Folder of a LoRA adapter for this model. ``python``: the one that has torch, the engine's. SettingsError for a
    model that none can be made for, RigError where there is no room."""
    return _made("adapter", model, seed, python, cache_dir)


def other_weights(model: str, seed: int, *, python: str = sys.executable, cache_dir: Path = DEFAULT_CACHE) -> str:
    """Folder of a model that differs from this one in its weights alone. Raises as ``adapter`` does."""
    return _made("weights", model, seed, python, cache_dir)


def _made(what: str, model: str, seed: int, python: str, cache_dir: Path) -> str:
    folder = Path(model)
    if not folder.is_dir():
        raise SettingsError(f"other {what} can be made for a model folder only, and {model} is none; give --model one.")
    target = cache_dir.resolve() / f"{folder.name}-{what}-{seed}-{_stamp(folder)}"
    if target.is_dir():
        return str(target)
    try:
        cache_dir.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{what}-", dir=cache_dir) as temporary:
            made = Path(temporary) / target.name
            made.mkdir()
            _make(what, folder, made, seed, python)
            place(made, target)
    except OSError as error:
        raise RigError(f"{what} can't be written to {cache_dir}: {error.strerror}; make room there.") from error
    return str(target)


def _stamp(folder: Path) -> str:
    """Another one when the model changes."""
    files = sorted((path.name, path.stat().st_size, path.stat().st_mtime_ns) for path in folder.iterdir())
    return hashlib.sha256(repr((str(folder.resolve()), files)).encode()).hexdigest()[:12]


def _make(what: str, model: Path, target: Path, seed: int, python: str) -> None:
    command = [python, "-m", "e2e.inside.made", what, str(model), str(target), str(seed)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_LIMIT_S, check=False, cwd=_ROOT)
    except subprocess.TimeoutExpired as error:
        raise RigError(f"{what} of {model} was not made within {_LIMIT_S} s; is the machine busy?") from error
    if done.returncode:
        last = done.stderr.strip().rpartition("\n")[2] or f"exit code {done.returncode}"
        raise SettingsError(f"{what} of {model} can't be made: {last}; give --model another one.")
