"""``maru-e2e placement``: regression and benchmark of the placement kernels, in a Python that has torch.

The rig itself never imports torch, so both run in processes of their own: kernels/regression.py and kernels/bench.py.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path

from e2e.base.errors import EXIT_CORRUPT, EXIT_PASS, RigError, SettingsError
from e2e.lab import report
from e2e.report.files import judged
from e2e.settings import world

#: Wall limit of each of the two, in seconds.
LIMIT_S = 1800.0
_ROOMS = Path(__file__).resolve().parents[1]
#: ``python -m``, for a process that the kernel ends with the rig, however that ends. An engine's Python has the rooms
#: that engines need; the lab lies in the rig's.
_ENTER = """
import ctypes, runpy, signal, sys
PR_SET_PDEATHSIG = 1
ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
import e2e
e2e.__path__.append(sys.argv[1])
del sys.argv[:2]
runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
"""


def placement(
    out: Path, *, device: str, quick: bool, limit_s: float = LIMIT_S, engine_python: Path | None = None
) -> int:
    """Writes regression.json and, on a GPU, bench.json into ``out``, and placement.md, which it prints, too. 0, or 1
    for a mismatch."""
    if out.exists() and not out.is_dir():
        raise SettingsError(f"--out: {out} is a file; give a folder.")
    python = world.engine_python(engine_python)
    _require_torch(python)
    try:
        out.mkdir(parents=True, exist_ok=True)
        (out / "regression.json").touch()
    except OSError as error:
        raise SettingsError(f"--out: {out} can't be written ({error.strerror}); choose another folder.") from error
    regression = _run("regression", ["--device", device], out=out, python=python, limit_s=limit_s)
    on_gpu = device == "cuda"
    bench = _run("bench", ["--quick"] * quick, out=out, python=python, limit_s=limit_s) if on_gpu else None
    code = EXIT_PASS if regression["ok"] else EXIT_CORRUPT
    with judged(code):
        report.write(regression, bench, directory=out)
    return code


def _require_torch(python: str, *, limit_s: float = 120.0) -> None:
    """Raises SettingsError, in one sentence, when this Python can't import torch."""
    cure = "run scripts/setup or maru-e2e setup, or repair it"
    try:
        tried = subprocess.run(
            [python, "-c", "import torch"], env=world.engine_environment(python),
            capture_output=True, text=True, errors="replace", timeout=limit_s, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise SettingsError(f"placement needs torch: importing it takes more than {limit_s:g} s; {cure}.") from None
    if tried.returncode:
        why = (tried.stderr.strip().splitlines() or [f"its import ended with exit code {tried.returncode}"])[-1]
        raise SettingsError(f"placement needs torch: {why.rstrip('.')}; {cure}.")


def _run(module: str, arguments: Sequence[str], *, out: Path, python: str, limit_s: float) -> dict[str, object]:
    """What it left in ``out``. A mismatch (exit code 1 with a result) is no failure of the run; anything else is."""
    result = out / f"{module}.json"
    result.unlink(missing_ok=True)
    command = [python, "-c", _ENTER, str(_ROOMS), f"e2e.lab.kernels.{module}", "--out", str(result), *arguments]
    try:
        environ = world.engine_environment(python)
        done = subprocess.run(
            command, env=environ, timeout=limit_s, check=False, stdout=subprocess.PIPE, text=True, errors="replace"
        )
    except subprocess.TimeoutExpired as error:
        raise RigError(f"the placement {module} took more than {limit_s:g} s; is the GPU busy?") from error
    if done.returncode not in (0, 1) or not result.is_file():
        raise RigError(f"the placement {module} failed with exit code {done.returncode}; see its words above.")
    return json.loads(result.read_text())
