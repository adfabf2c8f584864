import pytest

from e2e.base.connector import ConnectorConfig
from e2e.base.errors import SettingsError
from e2e.connectors.class_check import check_class

MODULE = """
print("noise on import")
class Good: pass
not_a_class = 1
"""


@pytest.fixture
def config(tmp_path):
    (tmp_path / "found.py").write_text(MODULE)
    (tmp_path / "broken.py").write_text("import nowhere_at_all")
    (tmp_path / "dying.py").write_text("import os; os._exit(7)")
    (tmp_path / "hanging.py").write_text("import time; time.sleep(60)")

    def make(name, module):
        return ConnectorConfig(name, module_path=module, env={"PYTHONPATH": str(tmp_path)})

    return make


def test_class_is_found(config):
    assert check_class(config("Good", "found")) is None


@pytest.mark.parametrize(
    ("name", "module", "why"),
    [
        ("Bad", "found", "found has no class Bad"),
        ("not_a_class", "found", "found.not_a_class is no class"),
        ("X", "nowhere", "ModuleNotFoundError: No module named 'nowhere'"),
        ("X", "broken", "No module named 'nowhere_at_all'"),
        ("X", "dying", "exit code 7"),
    ],
)
def test_what_is_wrong_is_said_in_one_sentence(config, name, module, why):
    with pytest.raises(SettingsError) as caught:
        check_class(config(name, module))
    assert why in str(caught.value)
    assert str(caught.value).startswith(f"connector class {name!r} can't be used: ")
    assert "\n" not in str(caught.value)


def test_import_that_hangs_has_a_limit(config):
    with pytest.raises(SettingsError, match=r"more than 0\.5 s"):
        check_class(config("X", "hanging"), limit_s=0.5)


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
