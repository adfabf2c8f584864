"""What tests of an emulated CXL host need: QEMU, built once, and a file that is the memory."""

from __future__ import annotations

import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.tests.cxl.host import SCRIPT, SIZE
from e2e.tests.engine.conftest import engine  # noqa: F401  (a fixture)


@pytest.fixture(scope="session")
def qemu() -> None:
    done = subprocess.run([SCRIPT, "build"], capture_output=True, text=True, timeout=1200, check=False)
    if done.returncode == 2:
        pytest.skip(done.stderr.rstrip().rpartition("\n")[2])
    assert done.returncode == 0, done.stderr


@pytest.fixture
def memory(qemu) -> Iterator[Path]:
    """The file whose bytes are the CXL memory of guests that are started on it."""
    file = Path("/dev/shm") / f"cxl-test-{uuid.uuid4().hex}"
    with file.open("wb") as made:
        made.truncate(SIZE)
    yield file
    file.unlink()
