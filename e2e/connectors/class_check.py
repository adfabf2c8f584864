"""Does the engine's Python find the connector class? Asked in a process of its own, before any engine starts."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping

from e2e.base.connector import ConnectorConfig
from e2e.base.errors import SettingsError

#: Becomes Python again under the engine's environment, so that the rig reads no environment of its own.
_ENTER = """
import json, os, sys
added, probe, *words = json.loads(sys.argv[1]), *sys.argv[2:]
if "PYTHONPATH" in added and os.environ.get("PYTHONPATH"):
    added["PYTHONPATH"] += os.pathsep + os.environ["PYTHONPATH"]
os.execve(sys.executable, [sys.executable, "-c", probe, *words], os.environ | added)
"""
#: Prints nothing when all is well, else one line; an import may print what it likes on its way.
_PROBE = """
import importlib, sys
name, module = sys.argv[1:3]
def say(text):
    print("\\nMARU-E2E " + " ".join(str(text).split()))
    raise SystemExit(3)
try:
    if module:
        found = getattr(importlib.import_module(module), name, None)
        if found is None:
            say(f"{module} has no class {name}")
        if not isinstance(found, type):
            say(f"{module}.{name} is no class")
    else:
        from vllm.distributed.kv_transfer.kv_connector.factory import KVConnectorFactory
        if name not in KVConnectorFactory._registry:
            say(f"this vLLM bundles no connector {name}")
except Exception as error:
    say(f"{type(error).__name__}: {error}")
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

    Takes as long as the class's own imports: some seconds where they pull vLLM and torch.
    """
    module = config.module_path or ""
    where = f"connector class {config.kv_connector!r}"
    try:
        probe = subprocess.run(
            [python, "-c", _ENTER, json.dumps(dict(config.env)), _PROBE, config.kv_connector, module],
            env=environ,
            capture_output=True,
            text=True,
            errors="replace",
            stdin=subprocess.DEVNULL,
            timeout=limit_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise SettingsError(f"{where} can't be used: importing it took more than {limit_s:g} s.") from None
    except OSError as error:
        raise SettingsError(f"{where} can't be looked for: {python} does not run ({error.strerror}).") from error
    if probe.returncode == 0:
        return
    said = [line.removeprefix("MARU-E2E ") for line in probe.stdout.splitlines() if line.startswith("MARU-E2E ")]
    why = said[-1] if said else f"its import ended Python with exit code {probe.returncode}"
    cure = "check class, module_path and env.PYTHONPATH" if module else "check class, or give its module_path"
    raise SettingsError(f"{where} can't be used: {why.rstrip('.')}; {cure}.")
