"""Which Maru is installed, told from its files: nothing of it is imported, since that would pull torch into the rig.

The name ``maru`` says nothing: other projects have it on package indexes. Only the module ``maru_vllm`` counts.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from functools import cache
from importlib import metadata, util
from pathlib import Path

MODULE = "maru_vllm"
KERNELS = "maru_kv_ops"
_KEY = re.compile(r"[\"'](maru_[a-z0-9_]+)[\"']")
#: In the line whose overlap places a layer by one kernel launch; it turns overlap off for layerwise objects.
_OVERLAP_KERNEL = "_place_packed_layer"


@dataclass(frozen=True)
class Build:
    """``keys``: extra-config keys that its source reads. ``kernels``: its compiled extension is there; whether it can
    be used is seen in the log. ``source``: digest of the connector's files, which tells commits of one version apart.
    """

    version: str
    commit: str
    source: str
    keys: frozenset[str]
    kernels: bool
    overlap_kernel: bool = False

    @property
    def july(self) -> bool:
        """The first published line: always layerwise, no async loads, no token held back (docs/maru.md)."""
        return "maru_use_layerwise" not in self.keys

    def as_json(self) -> dict[str, object]:
        line = "overlap-kernel" if self.overlap_kernel else "July 2026" if self.july else "current"
        return {
            "name": "maru", "version": self.version, "commit": self.commit, "source": self.source,
            "kernels": self.kernels, "line": line,
        }  # fmt: skip


@cache
def installed() -> Build | None:
    """The Maru that an engine of this Python would import, or None."""
    found = util.find_spec(MODULE)
    if found is None or not found.submodule_search_locations:
        return None
    return read_build(Path(next(iter(found.submodule_search_locations))), kernels=_kernels())


def read_build(package: Path, *, kernels: bool) -> Build:
    """``package``: the folder ``maru_vllm``."""
    source = "\n".join(path.read_text(encoding="utf-8", errors="replace") for path in sorted(package.glob("*.py")))
    version, commit = _distribution()
    return Build(
        version=version,
        commit=commit,
        source=hashlib.sha256(source.encode()).hexdigest()[:16],
        keys=frozenset(_KEY.findall(source)),
        kernels=kernels,
        overlap_kernel=_OVERLAP_KERNEL in source,
    )


def _distribution() -> tuple[str, str]:
    """Version and commit of the distribution that brought the module; "unknown" where nobody wrote it down."""
    for name in metadata.packages_distributions().get(MODULE, []):
        found = metadata.distribution(name)
        origin = json.loads(found.read_text("direct_url.json") or "{}")
        return found.version, origin.get("vcs_info", {}).get("commit_id", "unknown")
    return "unknown", "unknown"


def _kernels() -> bool:
    found = util.find_spec(KERNELS)
    if found is None:
        return False
    folders = [Path(path) for path in found.submodule_search_locations or ()]
    return str(found.origin or "").endswith(".so") or any(any(folder.glob("*.so")) for folder in folders)
