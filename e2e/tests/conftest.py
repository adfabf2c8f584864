"""For all tests: time never fails one, engines that they start can be interrupted, images are built meanwhile."""

import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

ROOT = Path(__file__).parents[2]

settings.register_profile("rig", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("rig")

#: A shell has the first ignored in the background, nohup the second; what tests start would inherit that.
for number, heard in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, heard)


@pytest.fixture(scope="session")
def wheel(tmp_path_factory) -> Path:
    """The wheel as pip makes it of this tree."""
    made = tmp_path_factory.mktemp("wheel")
    source = made / "source"  # a copy, since setuptools builds inside the tree
    for folder in ("e2e", "maru_e2e", "prompts"):
        shutil.copytree(ROOT / folder, source / folder, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    for file in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / file, source)
    build = ["-m", "pip", "--quiet", "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(made)]
    subprocess.run([sys.executable, *build, str(source)], check=True, timeout=120)
    (found,) = made.glob("*.whl")
    return found


def pytest_collection_modifyitems(items):
    """Docker last: .ci/run builds the images while the others run."""
    items.sort(key=lambda item: item.get_closest_marker("docker") is not None)


def pytest_collection_finish():
    """Tensors of tests are small: threads that wait for each other cost up to ten times what they do."""
    if torch := sys.modules.get("torch"):
        torch.set_num_threads(1)
