"""Real Maru, where it was installed (scripts/maru), with its resource manager and server on the guest's DAX device."""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from e2e.tests.cxl.host import DEVICE, started
from e2e.tests.cxl.maru_there import unexpected

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]
PACKAGES = ("maru", "maru_common", "maru_handler", "maru_server", "maru_shm")
#: what those import, for the guest's Python
NEEDS = ("pyzmq", "msgpack", "dacite")


@pytest.fixture
def brought(tmp_path) -> Path:
    """What the guest is to find: Maru's packages, what they need, and the resource manager."""
    found = [importlib.util.find_spec(name) for name in PACKAGES]
    manager = Path(sys.executable).with_name("maru-resource-manager")
    if None in found or not manager.exists():
        pytest.skip("there is no Maru beside this Python; MARU_REQUIREMENT=FOLDER scripts/maru installs yours")
    for one in found:
        source = Path(one.origin).parent
        shutil.copytree(source, tmp_path / source.name, ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "bin").mkdir()
    shutil.copy(manager, tmp_path / "bin")
    fetch = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--target", str(tmp_path), *NEEDS]
    for_guest = ["--python-version", "3.13", "--only-binary=:all:"]
    subprocess.run([sys.executable, *fetch, *for_guest], check=True, timeout=300)
    return tmp_path


def test_what_one_process_stores_another_retrieves(memory, brought):
    said = started(memory, "python3", "-m", "e2e.tests.cxl.maru_there", bring=brought).said()
    line = said.splitlines()[-1]  # Maru logs before
    (brought / "seen.json").write_text(line)  # as e2e/tests/recordings/maru/cxl-july.json keeps it
    assert unexpected(json.loads(line), DEVICE) == [], said
