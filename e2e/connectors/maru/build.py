"""Which Maru is installed, told from its files: nothing of it is imported, since that would pull torch into the rig.

The name ``maru`` says nothing: other projects have it on package indexes. Only the module ``maru_vllm`` counts.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path

from e2e.connectors.installed import Installed, installed

MODULE = "maru_vllm"
#: vLLM versions that moved the K/V axis, and that packed K and V into one view, which Triton's backend always had.
VIEW_MOVED, VIEW_PACKED = (0, 23), (0, 26)
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


#: Stands for the build that ``maru_of`` will find.
LOOK = Build(version="", commit="", source="", keys=frozenset(), kernels=False)


def maru_of(python: str) -> Build | None:
    """The Maru that an engine of this Python would import, or None."""
    here = installed(python)
    found = here.modules.get(MODULE)
    if found is None or not found.folders:
        return None
    version, commit = here.maru or ("unknown", "unknown")
    return read_build(Path(found.folders[0]), kernels=_kernels(here), version=version, commit=commit)


def read_build(package: Path, *, kernels: bool, version: str = "unknown", commit: str = "unknown") -> Build:
    """``package``: the folder ``maru_vllm``."""
    source = "\n".join(path.read_text(encoding="utf-8", errors="replace") for path in sorted(package.glob("*.py")))
    return Build(
        version=version,
        commit=commit,
        source=hashlib.sha256(source.encode()).hexdigest()[:16],
        keys=frozenset(_KEY.findall(source)),
        kernels=kernels,
        overlap_kernel=_OVERLAP_KERNEL in source,
    )


def misread(
    build: Build | None, vllm: tuple[int, int] | None, *, device: str, attention: str | None
) -> str | None:  # fmt: skip
    """July takes a view by the class of the attention's metadata: Triton's, right from vLLM 0.26 on, or else one
    that vLLM 0.23 moved (docs/maru.md#versions). The rig's CPU backend passes for Triton's."""
    if vllm is None or build is None or not build.july:
        return None
    if vllm >= VIEW_PACKED:
        if attention in ("TRITON_ATTN", "strided"):
            return None
        cure = "--attention TRITON_ATTN" if device == "cuda" else "the default of --attention"
        return f"this Maru misreads this attention backend's cache from vLLM 0.26 on; use {cure}, or a newer Maru."
    if vllm >= VIEW_MOVED or attention == "TRITON_ATTN":
        return f"this Maru loads nothing useful here on vLLM {vllm[0]}.{vllm[1]}; take 0.26 or newer, or a newer Maru."
    return None


def _kernels(here: Installed) -> bool:
    found = here.modules.get(KERNELS)
    if found is None:
        return False
    return found.origin.endswith(".so") or any(any(Path(folder).glob("*.so")) for folder in found.folders)
