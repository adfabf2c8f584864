"""The engine's interpreter: what it must have, and the rig's half that runs in it.

The rig's own Python may have no vLLM. Another one finds ``e2e.base`` and ``e2e.inside`` in a folder that is put on its
PYTHONPATH, with the entry point by which vLLM loads the plugin; nothing is installed there.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
import tempfile
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path

from e2e.base.errors import SettingsError
from e2e.connectors.installed import Installed, installed
from e2e.stack.owned import default_data_dir

_PACKAGE = Path(__file__).resolve().parents[1]
#: What runs inside engines, as in the engine's image.
_HALF = ("base", "inside")
_ENTRY_POINT = "[vllm.general_plugins]\nmaru_e2e = e2e.inside.plugin:register\n"
_CURE = "run maru-e2e setup, or name a Python that has it by --engine-python"


def made_by_setup(data: Path) -> Path:
    """The interpreter of the environment that ``maru-e2e setup`` makes when no other place is named."""
    return data / "engine" / "bin" / "python"


def engine_python(given: Path | None, *, environ: Mapping[str, str]) -> str:
    """The interpreter that starts engines: the named one, else this one where it has vLLM, else that of
    ``maru-e2e setup``. Raises SettingsError where there is none, or where it lacks what engines need."""
    python = candidate(given, environ=environ)
    if given is None and python == sys.executable and installed(python).vllm is None:
        raise SettingsError(f"no vLLM is installed here; {_CURE}.")
    check_engine(installed(python), python)
    return python


def candidate(given: Path | None, *, environ: Mapping[str, str]) -> str:
    """The same, whatever it lacks."""
    made = made_by_setup(default_data_dir(environ))
    if given or not made.exists() or installed().vllm:
        return str(given or sys.executable)
    return str(made)


def check_engine(found: Installed, python: str) -> None:
    if found.python < (3, 10):
        raise SettingsError(f"engine's Python {python} is {found.python[0]}.{found.python[1]}; take 3.10 or newer.")
    if found.vllm is None:
        raise SettingsError(f"engine's Python {python} has no vLLM; {_CURE}.")
    if "xxhash" not in found.modules:
        raise SettingsError(f"engine's Python {python} lacks xxhash; run {python} -m pip install xxhash.")


def engine_environment(python: str, *, environ: Mapping[str, str]) -> dict[str, str]:
    """What engines of this interpreter inherit: ``environ``, with the rig's half where it isn't this interpreter."""
    if python == sys.executable:
        return dict(environ)
    half = rigs_half(default_data_dir(environ) / "inside")
    return {**environ, "PYTHONPATH": os.pathsep.join(filter(None, (str(half), environ.get("PYTHONPATH"))))}


def rigs_half(folder: Path) -> Path:
    """A folder for PYTHONPATH that has the code for engines and no more; made once for each place of the rig."""
    name = f"{version('maru-e2e')}-{hashlib.sha256(str(_PACKAGE).encode()).hexdigest()[:12]}"
    target = folder / name
    try:
        if target.is_dir():
            return target
        folder.mkdir(parents=True, exist_ok=True)
        making = Path(tempfile.mkdtemp(prefix=f".{name}-", dir=folder))
        try:
            _fill(making)
            making.rename(target)
        except OSError:
            shutil.rmtree(making, ignore_errors=True)
            if not target.is_dir():  # another process may have been faster
                raise
    except OSError as error:
        raise SettingsError(f"{folder} can't be written ({error.strerror}); set XDG_DATA_HOME to a folder.") from error
    return target


def _fill(tree: Path) -> None:
    (tree / "e2e").mkdir()
    shutil.copy(_PACKAGE / "__init__.py", tree / "e2e")
    for room in _HALF:
        (tree / "e2e" / room).symlink_to(_PACKAGE / room)
    about = tree / f"maru_e2e-{version('maru-e2e')}.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: maru-e2e\nVersion: {version('maru-e2e')}\n")
    (about / "entry_points.txt").write_text(_ENTRY_POINT)
