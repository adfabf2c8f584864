"""The offline bundle: what is split can be joined, and nothing else passes for it."""

from __future__ import annotations

import importlib.util
import random
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

OFFLINE = Path(__file__).resolve().parents[4] / "scripts" / "offline"


def module(name: str):
    spec = importlib.util.spec_from_file_location(f"offline_{name}", OFFLINE / f"{name}.py")
    found = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = found
    spec.loader.exec_module(found)
    return found


pack, closure = module("pack"), module("closure")


def wheel(folder: Path, name: str, version: str, requires: tuple[str, ...] = (), files: dict[str, bytes] | None = None):
    path = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"]
        lines += [f"Requires-Dist: {text}" for text in requires]
        archive.writestr(f"{name}-{version}.dist-info/METADATA", "\n".join(lines) + "\n")
        for file, content in (files or {}).items():
            archive.writestr(file, content)
    return path


@pytest.fixture
def bundle(tmp_path):
    content = {"one/__init__.py": b"x = 1\n", "one/big.bin": random.Random(1).randbytes(4000), "one/left.a": b"no"}
    content["one-1.0.data/purelib/two.py"] = b"y = 2\n"
    tree = tmp_path / "site"
    dropped = pack.unpack([wheel(tmp_path, "one", "1.0", files=content)], tree, drop=("*.a",), strip=())
    assert dropped == ["one/left.a"]
    packed = pack.compress(pack.plan(tree, "site"), tmp_path / "archives", workers=1)
    room = pack.TOOLS_ROOM + 1000
    parts = pack.split(packed, tmp_path / "out", part_bytes=room, tools=OFFLINE, facts={"schema": "x"})
    return tree, parts


def assemble(parts: Path, target: Path) -> subprocess.CompletedProcess:
    command = [sys.executable, str(OFFLINE / "assemble.py"), str(target), str(parts)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_joined_parts_are_what_was_split(bundle, tmp_path):
    tree, parts = bundle
    assert len(parts) > 1
    done = assemble(tmp_path / "out", tmp_path / "target")
    assert done.returncode == 0, done.stderr
    joined = tmp_path / "target" / "site"
    files = {str(path.relative_to(tree)): path.read_bytes() for path in tree.rglob("*") if path.is_file()}
    assert files == {str(path.relative_to(joined)): path.read_bytes() for path in joined.rglob("*") if path.is_file()}
    assert files["two.py"] == b"y = 2\n"


def test_a_missing_part_is_said(bundle, tmp_path):
    _, parts = bundle
    for path in parts[-1].glob("site.*"):
        path.unlink()
    done = assemble(tmp_path / "out", tmp_path / "target")
    assert done.returncode == 1
    assert "bring all parts" in done.stderr
    assert "Traceback" not in done.stderr


def test_closure_stops_at_what_the_host_has(tmp_path):
    wheel(tmp_path, "one", "1.0", ("torch>=2", "two[fast]>1", 'old; python_version < "3"', "left"))
    wheel(tmp_path, "two", "1.5", ('three; extra == "fast"', 'four; extra == "slow"', "one"))
    wheel(tmp_path, "two", "2.0", ('three; extra == "fast"', 'four; extra == "slow"', "one"))
    wheel(tmp_path, "three", "3.0", ("two<2",))
    found = closure.close(["one"], alone=[], have={"torch"}, skip={"left"}, python="3.12", folder=tmp_path)
    assert {name: str(closure.version_of(path)) for name, path in found.wheels.items()} == {
        "one": "1.0", "two": "1.5", "three": "3.0",
    }  # fmt: skip
    assert (found.had, found.skipped) == ({"torch"}, {"left"})


def test_alone_means_without_what_it_needs(tmp_path):
    wheel(tmp_path, "one", "1.0", ("nowhere",))
    found = closure.close([], alone=["one"], have=set(), skip=set(), python="3.12", folder=tmp_path)
    assert list(found.wheels) == ["one"]
