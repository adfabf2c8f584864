"""An importable tree -> compressed archives -> parts of a given size, each with the tools to join them."""

from __future__ import annotations

import hashlib
import io
import json
import lzma
import shutil
import subprocess
import tarfile
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

from locked import BundleError

#: Files of at least so many bytes get an archive of their own: they unpack side by side and are packed once.
OWN_ARCHIVE = 20 << 20
#: xz level: higher ones gain a percent and cost twice the time.
LEVEL = 6
#: What a part carries beside the archives, bytes at most.
TOOLS_ROOM = 256 << 10
TOOLS = ("assemble.py", "assemble.sh", "check.py")


@dataclass(frozen=True)
class Archive:
    """``root``: where it unpacks, "site" or "rig", below the target folder. ``key``: changes when the content does."""

    name: str
    root: str
    files: tuple[tuple[str, Path], ...]
    key: str


def slim(tree: Path, *, drop: Sequence[str], strip: Sequence[str]) -> list[str]:
    """Removes what matches ``drop`` (path patterns) and says which paths; libraries that match ``strip`` lose their
    debug symbols."""
    dropped = []
    for path in sorted(path for path in tree.rglob("*") if path.is_file() or path.is_symlink()):
        name = path.relative_to(tree).as_posix()
        if any(fnmatch(name, pattern) for pattern in drop):
            path.unlink()
            dropped.append(name)
        elif any(fnmatch(name, pattern) for pattern in strip):
            _run(["strip", "--strip-debug", str(path)], cure="install it (apt-get install binutils)")
    return dropped


def _run(command: Sequence[str], *, cure: str, cwd: Path | None = None) -> bytes:
    try:
        return subprocess.run(command, cwd=cwd, capture_output=True, check=True, timeout=120).stdout
    except FileNotFoundError as error:
        raise BundleError(f"there is no {command[0]} here; {cure}.") from error
    except subprocess.SubprocessError as error:
        said = " ".join((getattr(error, "stderr", None) or b"").decode(errors="replace").split())
        raise BundleError(f"{' '.join(command[:2])} failed ({said or error}); {cure}.") from error


def plan(tree: Path, root: str) -> list[Archive]:
    """Big files alone, all others together."""
    rest, big = [], []
    for path in sorted(path for path in tree.rglob("*") if path.is_file()):
        (big if path.stat().st_size >= OWN_ARCHIVE else rest).append((str(path.relative_to(tree)), path))
    archives = [Archive(Path(name).name, root, ((name, path),), _key([(name, path)])) for name, path in big]
    return [*archives, Archive(root, root, tuple(rest), _key(rest))]


def _key(files: Iterable[tuple[str, Path]]) -> str:
    digest = hashlib.sha256(str(LEVEL).encode())
    for name, path in files:
        digest.update(f"\0{name}\0{path.stat().st_mode}\0".encode())
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()[:16]


def compress(archives: Sequence[Archive], folder: Path, *, workers: int) -> list[tuple[Archive, Path]]:
    """Writes what isn't there yet; an archive's file is named by its content."""
    folder.mkdir(parents=True, exist_ok=True)
    targets = [folder / f"{archive.name}.{archive.key}.tar.xz" for archive in archives]
    with ProcessPoolExecutor(workers) as pool:
        list(pool.map(_write, archives, targets))
    for path in set(folder.iterdir()) - set(targets):
        path.unlink()
    return list(zip(archives, targets, strict=True))


def _write(archive: Archive, target: Path) -> None:
    if target.exists():
        return
    partial = target.with_suffix(".partial")
    with lzma.open(partial, "wb", preset=LEVEL) as out, tarfile.open(fileobj=out, mode="w|") as tar:
        for name, path in archive.files:
            info = tarfile.TarInfo(name)
            info.size, info.mode = path.stat().st_size, path.stat().st_mode & 0o777
            with path.open("rb") as source:
                tar.addfile(info, source)
    partial.rename(target)


def split(
    packed: Sequence[tuple[Archive, Path]], out: Path, *, part_bytes: int, tools: Path, facts: dict
) -> list[Path]:
    """Part folders part-1.. of at most ``part_bytes`` each; an archive may run over several. Every part has the tools
    and the manifest, so any of them can start the joining."""
    for old in out.glob("part-*"):
        shutil.rmtree(old)
    room = part_bytes - TOOLS_ROOM
    manifest = {**facts, "archives": [_describe(archive, path) for archive, path in packed]}
    parts: list[Path] = []
    left = 0
    for archive, path in packed:
        with path.open("rb") as source:
            size, number = path.stat().st_size, 0
            while size > 0:
                if left == 0:
                    parts.append(out / f"part-{len(parts) + 1}")
                    parts[-1].mkdir(parents=True)
                    left = room
                piece = min(left, size)
                (parts[-1] / f"{archive.name}.{number:03}").write_bytes(source.read(piece))
                size, left, number = size - piece, left - piece, number + 1
    for part in parts:
        for tool in TOOLS:
            shutil.copy2(tools / tool, part / tool)
        (part / "manifest.json").write_text(json.dumps({**manifest, "parts": len(parts)}, indent=1))
    return parts


def _describe(archive: Archive, path: Path) -> dict[str, object]:
    data = path.read_bytes()
    return {"name": archive.name, "root": archive.root, "bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}


def sources(clone: Path, folder: Path) -> Path:
    """The clone's committed files, unpacked."""
    archive = _run(["git", "archive", "HEAD"], cwd=clone, cure="make the bundle in a git clone")
    shutil.rmtree(folder, ignore_errors=True)
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        tar.extractall(folder, filter="data")
    return folder
