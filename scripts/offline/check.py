"""Imports everything that a bundle holds and compares what it asks for with what is there; one line a failure.

usage: check.py   with PYTHONPATH=RIG:SITE. Exit code 2 if anything that is needed fails.
"""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
from importlib import metadata

#: Needed by a run; each is imported in this order, in one process.
NEEDED = (
    "torch", "triton", "transformers", "tokenizers", "safetensors", "gguf", "accelerate", "requests", "psutil",
    "pydantic", "cyclopts", "tenacity", "junitparser", "xxhash", "docker", "prometheus_client", "allpairspy",
    "jsonschema", "jinja2", "rich", "scipy", "xgrammar", "llguidance", "vllm", "vllm._C", "vllm._C_stable_libtorch",
    "vllm.vllm_flash_attn", "vllm.entrypoints.openai.api_server", "vllm.v1.engine.core", "vllm.v1.worker.gpu_worker",
    "vllm.v1.attention.backends.flash_attn", "vllm.model_executor.models.llama",
    "vllm.distributed.kv_transfer.kv_connector.v1.base", "e2e.run", "e2e.cli", "e2e.inside.extension",
    "e2e.inside.connector",
)  # fmt: skip
#: Good to have: a run goes on without.
OPTIONAL = ("lmcache.c_ops", "vllm._moe_C", "vllm.vllm_flash_attn._vllm_fa3_C", "vllm.vllm_flash_attn._vllm_fa2_C")
#: Distributions whose requirements are compared with what is installed.
ASKING = ("vllm", "maru-e2e", "transformers", "xgrammar")


def main() -> int:
    failed = [line for name in NEEDED if (line := _import(name))]
    left = [line for name in OPTIONAL if (line := _import(name))]
    left += [line for name in ASKING for line in _requirements(name)]
    for line in failed:
        print(f"FAIL {line}")
    for line in left:
        print(f"note {line}")
    print(_versions())
    print(f"check: {len(NEEDED) - len(failed)} of {len(NEEDED)} needed imports work, {len(left)} notes")
    return 2 if failed else 0


def _import(name: str) -> str | None:
    try:
        importlib.import_module(name)
    except BaseException as error:  # an extension built for another torch may raise anything
        return f"import {name}: {type(error).__name__}: {str(error).strip().splitlines()[0] if str(error) else ''}"
    return None


def _requirements(name: str) -> list[str]:
    """What a distribution asks for and this Python lacks or has in another version."""
    try:
        from packaging.requirements import Requirement

        asked = metadata.requires(name) or []
    except (ImportError, metadata.PackageNotFoundError) as error:
        return [f"{name}: no metadata ({error})"]
    lines = []
    for text in asked:
        requirement = Requirement(text)
        if requirement.marker and not requirement.marker.evaluate({"extra": ""}):
            continue
        try:
            version = metadata.version(requirement.name)
        except metadata.PackageNotFoundError:
            lines.append(f"{name} asks for {requirement.name}{requirement.specifier}, which isn't there")
            continue
        if not requirement.specifier.contains(re.sub(r"\+.*", "", version), prereleases=True):
            lines.append(f"{name} asks for {requirement.name}{requirement.specifier}; {version} is there")
    return lines


def _versions() -> str:
    names = ("vllm", "torch", "triton", "transformers", "tokenizers", "numpy", "protobuf", "pydantic", "lmcache")
    found = []
    for name in names:
        try:
            found.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            found.append(f"{name} -")
    gpu = "no torch"
    if "torch" in sys.modules:
        torch = sys.modules["torch"]
        gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else "no GPU"
    return f"python {sys.version.split()[0]}, {', '.join(found)}, {gpu}"


if __name__ == "__main__":
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    if os.environ.get("MARU_E2E_CHECK") == "inner":
        sys.exit(main())
    # an extension that crashes the process must not take the report with it
    code = subprocess.run(
        [sys.executable, __file__], env={**os.environ, "MARU_E2E_CHECK": "inner"}, check=False
    ).returncode
    if code < 0:
        print(f"FAIL an import killed Python with signal {-code}; run with python -v to see which")
    sys.exit(2 if code else 0)
