"""What ``maru-e2e placement`` starts ends with it, also after kill -9."""

import os
import signal
import subprocess
import sys
import time

import psutil
import pytest

pytestmark = pytest.mark.kill
#: Stands in for torch: imported for a look it is quick, in the regression it stays and says who it is.
TORCH = """
import os, sys, time
if any("kernels.regression" in word for word in sys.orig_argv):
    with open("pid.new", "w") as file:
        file.write(str(os.getpid()))
    os.rename("pid.new", "pid")
    time.sleep(60)
"""


def test_the_regression_ends_with_the_rig(tmp_path):
    (tmp_path / "torch.py").write_text(TORCH)
    rig = subprocess.Popen(
        [sys.executable, "-m", "e2e.cli", "placement", "--device", "cpu", "--out", "out"],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )  # fmt: skip
    deadline = time.monotonic() + 60
    while not (tmp_path / "pid").exists() and time.monotonic() < deadline and rig.poll() is None:
        time.sleep(0.05)
    regression = psutil.Process(int((tmp_path / "pid").read_text()))
    os.kill(rig.pid, signal.SIGKILL)
    rig.wait()
    regression.wait(timeout=10)
