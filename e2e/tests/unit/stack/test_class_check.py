"""The class check: only a class that was found is one, whatever its import does on its way."""

import os
import signal
import subprocess
import sys
import time
import venv

import psutil
import pytest

from e2e.base.connector import ConnectorConfig
from e2e.base.errors import SettingsError
from e2e.stack.class_check import check_class
from e2e.stack.interpreter import engine_environment

MODULES = {
    "found": "print('noise on import')\nclass Good: pass\nnot_a_class = 1",
    "broken": "import nowhere_at_all",
    "dying": "import os; os._exit(7)",
    "leaving": "import sys; sys.exit(0)\nclass X: pass",
    "leaving_quietly": "import os; os._exit(0)\nclass X: pass",
    "leaving_with_words": "raise SystemExit('no licence')",
    "interrupted": "raise KeyboardInterrupt",
    "crashing": "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)",
    "itself": "from itself import X",
    "deep": "def f(): f()\nf()",
    "mute": "class Mute(Exception):\n  def __str__(self): return ''\nraise Mute",
    "hanging": "import time, os; open(__file__ + '.pid', 'w').write(str(os.getpid())); time.sleep(60)",
    "spinning": "while True: pass",
    "noisy": "import sys\nfor out in sys.stdout, sys.stderr:\n  out.write('\\x1b[31mMARU-E2E found\\0\\n' * 99999)\n",
    "threaded": "import threading, time\nthreading.Thread(target=time.sleep, args=(60,)).start()\nclass X: pass",
    "at_exit": "import atexit, time\natexit.register(time.sleep, 60)\nclass X: pass",
    "forking": "import os, time\nif not (pid := os.fork()):\n  time.sleep(60)\n"
    "open(__file__ + '.pid', 'w').write(str(pid))\nclass X: pass",
    "daemon": "import subprocess\nleft = subprocess.Popen(['sleep', '60'], start_new_session=True)\n"
    "open(__file__ + '.pid', 'w').write(str(left.pid))\nclass X: pass",
}


@pytest.fixture
def config(tmp_path):
    for name, text in MODULES.items():
        (tmp_path / f"{name}.py").write_text(text)

    def make(name, module):
        return ConnectorConfig(name, module_path=module, env={"PYTHONPATH": str(tmp_path)})

    return make


def test_class_is_found(config):
    assert check_class(config("Good", "found")) is None


@pytest.mark.parametrize("module", ["threaded", "at_exit"])
def test_what_an_import_leaves_running_delays_nothing(config, module):
    began = time.monotonic()
    assert check_class(config("X", module)) is None
    assert time.monotonic() - began < 30  # what it left sleeps for 60 s


@pytest.mark.parametrize("module", ["forking", "daemon"])
def test_what_an_import_started_is_ended(config, tmp_path, module):
    assert check_class(config("X", module)) is None
    left = int((tmp_path / f"{module}.py.pid").read_text())
    assert not psutil.pid_exists(left) or psutil.Process(left).status() == psutil.STATUS_ZOMBIE


@pytest.mark.parametrize(
    ("name", "module", "why"),
    [
        ("Bad", "found", "found has no class Bad"),
        ("not_a_class", "found", "found.not_a_class is no class"),
        ("X", "nowhere", "ModuleNotFoundError: No module named 'nowhere'"),
        ("X", "broken", "No module named 'nowhere_at_all'"),
        ("X", "dying", "exit code 7"),
        ("X", "leaving", "importing it ends Python (SystemExit: 0)"),
        ("X", "leaving_quietly", "exit code 0"),
        ("X", "leaving_with_words", "(SystemExit: no licence)"),
        ("X", "interrupted", "KeyboardInterrupt"),
        ("X", "crashing", "signal 11"),
        ("X", "itself", "cannot import name 'X'"),
        ("X", "deep", "RecursionError"),
        ("X", "mute", "Mute"),
        ("X", "noisy", "noisy has no class X"),
    ],
)
def test_what_is_wrong_is_said_in_one_sentence(config, name, module, why):
    with pytest.raises(SettingsError) as caught:
        check_class(config(name, module))
    assert why in str(caught.value)
    assert str(caught.value).startswith(f"connector class {name!r} can't be used: ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("module", ["hanging", "spinning"])
def test_import_that_hangs_has_a_limit(config, module):
    with pytest.raises(SettingsError, match=r"more than 0\.5 s"):
        check_class(config("X", module), limit_s=0.5)


def test_import_that_hangs_ends_also_without_the_rig(config, tmp_path):
    script = (
        "import sys\nfrom e2e.base.connector import ConnectorConfig as C\nfrom e2e.stack import class_check\n"
        "class_check.check_class(C('X', module_path='hanging', env={'PYTHONPATH': sys.argv[1]}), limit_s=3)"
    )
    rig = subprocess.Popen([sys.executable, "-c", script, str(tmp_path)], stderr=subprocess.DEVNULL)
    written = tmp_path / "hanging.py.pid"
    deadline = time.monotonic() + 30
    while not (written.exists() and written.read_text()) and time.monotonic() < deadline:
        time.sleep(0.05)
    probe = psutil.Process(int(written.read_text()))
    os.kill(rig.pid, signal.SIGKILL)
    rig.wait()
    probe.wait(timeout=30)


def test_working_folder_is_no_place_for_engines(config, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    config("Good", "found")
    with pytest.raises(SettingsError, match="No module named 'found'"):
        check_class(ConnectorConfig("Good", module_path="found"))


def test_python_that_is_not_there(config):
    with pytest.raises(SettingsError, match="does not run"):
        check_class(config("Good", "found"), python="/nowhere/python")


def test_import_sees_the_engines_environment(tmp_path, monkeypatch):
    (tmp_path / "own").mkdir()
    (tmp_path / "inherited").mkdir()
    (tmp_path / "inherited" / "helper.py").write_text("")
    (tmp_path / "own" / "picky.py").write_text("import os, helper\nassert os.environ['MARK'] == 'a b'\nclass C: pass")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "inherited"))
    env = {"PYTHONPATH": str(tmp_path / "own"), "MARK": "a b"}
    assert check_class(ConnectorConfig("C", module_path="picky", env=env)) is None
    with pytest.raises(SettingsError, match="AssertionError"):
        check_class(ConnectorConfig("C", module_path="picky", env=env | {"MARK": "other"}))


@pytest.mark.parametrize("theirs", ["e2e/__init__.py", "e2e/inside/__init__.py"])
def test_another_e2e_on_the_connectors_path_is_named(config, tmp_path, theirs):
    """It would hide the rig's part in the engine, which would die of it after a minute."""
    venv.create(tmp_path / "venv", with_pip=False)
    python = str(tmp_path / "venv" / "bin" / "python")
    environ = engine_environment(python, environ={"XDG_DATA_HOME": str(tmp_path / "data")})
    assert check_class(config("Good", "found"), python=python, environ=environ) is None
    (tmp_path / theirs).parent.mkdir(parents=True)
    (tmp_path / "e2e" / "__init__.py").touch()
    (tmp_path / theirs).touch()
    with pytest.raises(
        SettingsError, match=r"another package e2e \(.*/e2e\), which hides the rig's; check .*PYTHONPATH"
    ):
        check_class(config("Good", "found"), python=python, environ=environ)
