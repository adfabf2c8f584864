"""Where there is no emulated CXL host, scripts/cxl-host says in one sentence what to do."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPT = str(Path(__file__).resolve().parents[4] / "scripts" / "cxl-host")
#: What the script needs before it asks for what builds QEMU.
TOOLS = ("bash", "cat", "dirname", "flock", "id", "mkdir", "mktemp", "rm", "sha256sum", "uname")


@pytest.fixture
def said(tmp_path):
    """What it says on stderr with these arguments, in an empty cache of its own."""

    def run(*words: str, **environ: str) -> str:
        done = subprocess.run(
            [SCRIPT, *words], capture_output=True, text=True, timeout=60, check=False,
            env={**os.environ, "CXL_HOST": str(tmp_path / "cache"), "TMPDIR": str(tmp_path), **environ},
        )  # fmt: skip
        assert done.returncode == 2
        (line,) = done.stderr.splitlines()
        return line

    return run


def test_another_word_is_refused(said):
    assert said("boot") == "cxl-host: use build, run FILE COMMAND..., test or clean."


def test_nothing_runs_before_it_is_built(said, tmp_path):
    line = said("run", str(tmp_path / "memory"), "true")
    assert line == "cxl-host: there is no QEMU yet; run scripts/cxl-host build first."


def test_a_file_that_is_no_memory_is_refused(said, tmp_path):
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "stamp").touch()
    (tmp_path / "memory").write_bytes(bytes(4096))
    line = said("run", str(tmp_path / "memory"), "true")
    assert line.endswith("memory has 4096 bytes, and CXL memory comes by 256 MiB; give it CXL_SIZE=512M, say.")


def test_what_qemu_is_built_with_is_named(said, tmp_path):
    (tmp_path / "bin").mkdir()
    for tool in TOOLS:
        (tmp_path / "bin" / tool).symlink_to(shutil.which(tool))
    line = said("build", PATH=str(tmp_path / "bin"))
    assert line == "cxl-host: building QEMU needs more tools; apt-get install mmdebstrap cpio kmod zstd."
