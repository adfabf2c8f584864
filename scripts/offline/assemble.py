"""Joins and unpacks a bundle's parts. Standard library only: it runs where nothing is installed yet.

usage: assemble.py TARGET PARTS
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import sys
import tarfile
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path


def main(target: Path, parts: Path) -> int:
    """0, or 2 after one sentence on stderr."""
    try:
        wrong = join(target, parts)
    except OSError as error:
        wrong = f"{error.filename or target} can't be written ({error.strerror}); give a folder with 2 GB of room."
    if wrong:
        print(f"bundle: {wrong}", file=sys.stderr)
        return 2
    return 0


def join(target: Path, parts: Path) -> str | None:
    """None, or what is wrong in one sentence."""
    manifests = sorted(parts.rglob("manifest.json"))
    if not manifests:
        return f"{parts} holds no part of a bundle (no manifest.json); give the folder that holds the parts."
    try:
        manifest, *others = (json.loads(path.read_text()) for path in manifests)
    except ValueError as error:
        return f"{parts} holds a manifest.json that is damaged ({error}); bring that part again."
    if any(other != manifest for other in others):
        return f"{parts} holds parts of different bundles; keep those of one."
    jobs = []
    for archive in manifest["archives"]:
        pieces = parts.rglob(f"{archive['name']}.[0-9][0-9][0-9]")
        jobs.append((archive, sorted(pieces, key=lambda path: path.suffix)))  # part-10 sorts before part-2
    with ProcessPoolExecutor(min(len(jobs), os.cpu_count() or 1)) as pool:
        wrong = [answer for answer in pool.map(_unpack, [(*job, str(target)) for job in jobs]) if answer]
    if wrong:
        return f"{wrong[0]} ({len(manifests)} of {manifest['parts']} parts are there)"
    print(f"assembled {len(jobs)} archives of {manifest['parts']} parts into {target}")
    return None


def _unpack(job) -> str | None:
    archive, pieces, target = job
    data = b"".join(path.read_bytes() for path in pieces)
    if len(data) != archive["bytes"] or hashlib.sha256(data).hexdigest() != archive["sha256"]:
        return f"archive {archive['name']} has {len(data)} of {archive['bytes']} bytes, or wrong ones; bring all parts."
    with tarfile.open(fileobj=io.BytesIO(data), mode="r:xz") as tar:
        tar.extractall(Path(target) / archive["root"], filter="data")
    return None


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2])))
