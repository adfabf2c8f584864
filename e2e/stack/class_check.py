"""Does the engine's Python find the connector class? Asked in a process of its own, before any engine starts."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Mapping
from contextlib import suppress

import psutil

from e2e.base.connector import ConnectorConfig
from e2e.base.errors import SettingsError
from e2e.stack.owned import MARK, marked

#: Becomes Python again under the engine's environment, so that the rig reads no environment of its own. Its alarm
#: outlives that, and ends it also when the rig is gone.
_ENTER = """
import json, os, signal, sys
added, limit_s, probe, *words = json.loads(sys.argv[1]), float(sys.argv[2]), *sys.argv[3:]
if added.get("PYTHONPATH") and os.environ.get("PYTHONPATH"):
    added["PYTHONPATH"] += os.pathsep + os.environ["PYTHONPATH"]
signal.setitimer(signal.ITIMER_REAL, limit_s)
os.execve(sys.executable, [sys.executable, "-c", probe, *words], os.environ | added)
"""
#: Answers into a file of its own, since an import may print, and leaves at once, since it may have started threads.
#: Only "found" means yes: an import that ends Python says nothing.
_PROBE = """
import importlib.util, os, sys
name, module, file = sys.argv[1], sys.argv[2], int(sys.argv[3])
sys.path[:] = [path for path in sys.path if path]  # engines run in another folder than this
def answer(text, write=os.write, leave=os._exit):
    write(file, (" ".join(text.split())[:400] + "\\n").encode(errors="replace"))
    leave(0)
try:
    if module:
        found = getattr(importlib.import_module(module), name, None)
        if found is None:
            answer(f"{module} has no class {name}")
        if not isinstance(found, type):
            answer(f"{module}.{name} is no class")
    else:
        from vllm.distributed.kv_transfer.kv_connector.factory import KVConnectorFactory
        if name not in KVConnectorFactory._registry:
            answer(f"this vLLM bundles no connector {name}")
    try:
        ours = importlib.util.find_spec("e2e.inside.extension")
    except ImportError:
        ours = None
    if ours is None:
        where = list(sys.modules["e2e"].__path__)[0]
        answer(f"its PYTHONPATH has another package e2e ({where}), which hides the rig's")
    answer("found")
except Exception as error:
    answer(f"{type(error).__name__}: {error}")
except BaseException as error:
    answer(f"importing it ends Python ({type(error).__name__}: {error})")
"""


def check_class(
    config: ConnectorConfig,
    *,
    python: str = sys.executable,
    environ: Mapping[str, str] | None = None,
    limit_s: float = 120,
) -> None:
    """Raises SettingsError, in one sentence, when ``python`` can't import the class under the connector's environment.
    ``environ``: what engines of that Python inherit, None for our own.

    Takes as long as the class's own imports: some seconds where they pull vLLM and torch. What they start is ended.
    """
    module = config.module_path or ""
    where = f"connector class {config.kv_connector!r}"
    mark = f"class-check-{uuid.uuid4().hex}"
    with tempfile.TemporaryFile() as file:
        enter = [_ENTER, json.dumps({**config.env, MARK: mark}), str(limit_s), _PROBE]
        try:
            process = subprocess.Popen(
                [python, "-c", *enter, config.kv_connector, module, str(file.fileno())],
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                pass_fds=(file.fileno(),), start_new_session=True, env=environ,
            )  # fmt: skip
        except OSError as error:
            raise SettingsError(f"{where} can't be looked for: {python} does not run ({error.strerror}).") from error
        try:
            code = process.wait(limit_s)
        except subprocess.TimeoutExpired:
            raise SettingsError(f"{where} can't be used: importing it took more than {limit_s:g} s.") from None
        finally:
            _end(process, mark)
        file.seek(0)
        said = file.read().decode(errors="replace").splitlines()
    wrong = [line for line in said if line != "found"]
    if said and not wrong:
        return
    ended = f"exit code {code}" if code >= 0 else f"signal {-code}"
    why = wrong[0] if wrong else f"its import ended Python with {ended}"
    cure = "check class, module_path and env.PYTHONPATH" if module else "check class, or give its module_path"
    raise SettingsError(f"{where} can't be used: {why.rstrip('.')}; {cure}.")


def _end(process: subprocess.Popen[bytes], mark: str) -> None:
    """The probe and whatever its import started, which carries its mark."""
    process.kill()
    process.wait()
    left = list(marked(MARK, mark))
    for started in left:
        with suppress(psutil.Error):
            started.kill()
    psutil.wait_procs(left, timeout=5)
