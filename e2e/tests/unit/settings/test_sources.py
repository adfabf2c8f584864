"""Each flag is also a variable and a key of a file; whatever is wrong is named by where it stands."""

import shutil
import sys
from pathlib import Path
from types import ModuleType

import pytest

from e2e import cli
from e2e.settings import device
from e2e.settings.commands import DoctorFlags, FaultFlags, GainFlags, JudgeFlags, NightFlags, PlacementFlags, RunFlags
from e2e.settings.settings import Settings


@pytest.fixture(autouse=True)
def elsewhere(monkeypatch, tmp_path):
    monkeypatch.setattr(device, "has_gpu", lambda: False)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def settings_of(monkeypatch):
    """What a run gets from a command line."""
    seen = []
    module = ModuleType("e2e.run")
    module.run = lambda settings: seen.append(settings) or 0
    monkeypatch.setitem(sys.modules, "e2e.run", module)

    def ask(*argv):
        assert cli.execute(argv) == 0
        return seen.pop()

    return ask


def test_every_flag_has_a_variable_and_a_name_of_its_own():
    for command in (RunFlags, FaultFlags, GainFlags, PlacementFlags, JudgeFlags, DoctorFlags, NightFlags):
        names = []
        for field, info in command.model_fields.items():
            (flag,) = [each for each in info.metadata if hasattr(each, "env_var")]
            (name,) = flag.name
            own = "judge-out" if command is JudgeFlags else name[2:]
            assert flag.env_var[0] == "MARU_E2E_" + own.upper().replace("-", "_"), field
            assert flag.help, field
            names.append(name)
        assert len({*names}) == len(names)


def test_every_setting_of_a_run_is_a_flag():
    flags = {*RunFlags.model_fields, *FaultFlags.model_fields}
    assert {*Settings.model_fields} - flags == {"argv", "self_test"}


def test_variables_reach_the_run(settings_of, monkeypatch):
    monkeypatch.setenv("MARU_E2E_MAX_TOKENS", "5")
    monkeypatch.setenv("MARU_E2E_CELL", "layout=HND,overlap=on layout=NHD")
    monkeypatch.setenv("MARU_E2E_STRICT", "true")
    monkeypatch.setenv("MARU_E2E_LENGTHS", "385,1041")
    monkeypatch.setenv("MARU_SERVER_URL", "tcp://127.0.0.1:5555")
    monkeypatch.setenv("MARU_E2E_API_KEY", "sk-secret")
    monkeypatch.setenv("MARU_E2E_ATTACH", "http://127.0.0.1:8000")
    settings = settings_of("run")
    assert (settings.max_tokens, settings.strict, settings.lengths) == (5, True, (385, 1041))
    assert settings.cells == ({"layout": "HND", "overlap": "on"}, {"layout": "NHD"})
    assert settings.connector_server == "127.0.0.1:5555"
    assert settings.api_key.get_secret_value() == "sk-secret"


def test_an_empty_variable_is_none(settings_of, monkeypatch):
    for name in ("MARU_E2E_MAX_TOKENS", "MARU_E2E_CELL", "MARU_SERVER_URL", "MARU_E2E_OUT", "MARU_E2E_CONFIG"):
        monkeypatch.setenv(name, "")
    settings = settings_of("run")
    assert (settings.max_tokens, settings.cells, settings.connector_server) == (8, (), None)


def test_a_file_holds_a_run(settings_of, tmp_path):
    (tmp_path / "run.toml").write_text(
        'grid = "full"\ncell = ["layout=HND", "overlap=on"]\nlengths = [385, 1041]\nmax_tokens = 4\n'
        'pool-size = "2G"\nstrict = true\ndigests = false\nstart-limit-s = 9.5\nout = "there"\n'
    )
    settings = settings_of("run", "--config", "run.toml")
    assert settings.cells == ({"layout": "HND"}, {"overlap": "on"})
    assert (settings.lengths, settings.max_tokens, settings.pool_bytes) == ((385, 1041), 4, 2 << 30)
    assert (settings.strict, settings.digests, settings.start_limit_s) == (True, False, 9.5)
    assert str(settings.out) == "there"


def test_flags_win_over_variables_and_those_over_the_file(settings_of, monkeypatch, tmp_path):
    (tmp_path / "run.toml").write_text("max-tokens = 1\nprompts = 1\nrequest-limit-s = 1\ncell = 'layout=HND'\n")
    monkeypatch.setenv("MARU_E2E_MAX_TOKENS", "2")
    monkeypatch.setenv("MARU_E2E_PROMPTS", "2")
    monkeypatch.setenv("MARU_E2E_CONFIG", "run.toml")
    settings = settings_of("run", "--max-tokens", "3", "--cell", "layout=NHD")
    assert (settings.max_tokens, settings.prompts, settings.request_limit_s) == (3, 2, 1)
    assert settings.cells == ({"layout": "NHD"},)


def test_what_a_file_gave_is_recorded_like_a_flag(settings_of, tmp_path):
    (tmp_path / "run.toml").write_text("max-tokens = 4\n")
    assert settings_of("run", "--config", "run.toml").as_json()["max_tokens"] == 4
    assert "config" not in settings_of("run", "--config", "run.toml").as_json()


def test_the_key_is_in_no_settings_and_no_command_line(settings_of):
    settings = settings_of("run", "--attach", "http://h:1", "--api-key", "sk-secret")
    assert settings.argv == ("run", "--attach", "http://h:1", "--api-key", "(redacted)")
    assert "sk-secret" not in repr(settings) + str(settings.as_json())


def test_a_variable_that_nobody_knows_is_named_and_goes_on(settings_of, monkeypatch, capsys):
    monkeypatch.setenv("MARU_E2E_MAX_TOKEN", "5")
    monkeypatch.setenv("MARU_E2E_RUN", "an engine's mark")
    assert settings_of("run").max_tokens == 8
    said = capsys.readouterr().err
    assert said == "maru-e2e: MARU_E2E_MAX_TOKEN is no variable of the rig; did you mean MARU_E2E_MAX_TOKENS?\n"


def test_faults_have_their_own_defaults(settings_of):
    settings = settings_of("faults", "--fault", "bit_flip")
    assert (settings.self_test, settings.faults) == (True, ("bit_flip",))
    assert (settings.prompts, settings.max_tokens) == (2, 4)
    assert settings_of("faults", "--max-tokens", "8").max_tokens == 8


def test_the_recorded_command_line_needs_no_variable_and_no_file(settings_of, monkeypatch, tmp_path):
    (tmp_path / "run.toml").write_text('cell = ["layout=HND", "overlap=on"]\nstrict = true\nmax-tokens = 1\n')
    monkeypatch.setenv("MARU_E2E_DIGESTS", "off")
    monkeypatch.setenv("MARU_E2E_LENGTHS", "385,1041")
    monkeypatch.setenv("MARU_E2E_API_KEY", "sk-secret")
    monkeypatch.setenv("MARU_E2E_ATTACH", "http://h:1")
    first = settings_of("run", "--config", "run.toml", "--max-tokens=2")
    assert "sk-secret" not in first.argv
    assert "--config" not in first.argv
    for name in ("DIGESTS", "LENGTHS", "ATTACH"):
        monkeypatch.delenv(f"MARU_E2E_{name}")
    again = settings_of(*first.argv)
    assert {**again.as_json(), "out": ""} == {**first.as_json(), "out": ""}


@pytest.mark.parametrize(
    ("given", "origin"),
    [
        ({"MARU_E2E_ATTACH": "http://h:1"}, "(--attach is from MARU_E2E_ATTACH)."),
        ({"MARU_E2E_CONFIG": "run.toml"}, "(--attach is from run.toml: attach)."),
    ],
)
def test_a_contradiction_names_where_its_other_half_stands(monkeypatch, tmp_path, capsys, given, origin):
    (tmp_path / "run.toml").write_text('attach = "http://h:1"\n')
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    assert cli.execute(["run", "--launcher", "docker"]) == 2
    assert capsys.readouterr().err.rstrip().endswith(origin)


def test_a_key_that_stays_set_hinders_no_run_of_ones_own_engines(settings_of, monkeypatch):
    monkeypatch.setenv("MARU_E2E_API_KEY", "sk-secret")
    assert settings_of("run").attach is None


def test_where_a_run_goes_by_variable_is_not_where_another_ones_reports_go(monkeypatch, tmp_path):
    seen = []
    module = ModuleType("e2e.run")
    module.rejudge = lambda folder, out: seen.append(out) or 0
    monkeypatch.setitem(sys.modules, "e2e.run", module)
    (tmp_path / "recording.jsonl").write_text("")
    monkeypatch.setenv("MARU_E2E_OUT", "a-run")
    assert cli.execute(["judge", str(tmp_path)]) == 0
    monkeypatch.setenv("MARU_E2E_JUDGE_OUT", "there")
    assert cli.execute(["judge", str(tmp_path)]) == 0
    assert [str(out) for out in seen] == ["None", "there"]


def test_a_comparison_is_judged_again_in_its_own_folder_or_where_one_says(monkeypatch, tmp_path):
    recordings = Path(__file__).resolve().parents[2] / "recordings" / "h200"
    (tmp_path / "ran").mkdir()
    shutil.copy(recordings / "gain-nhd.jsonl.gz", tmp_path / "ran" / "recording.jsonl.gz")
    monkeypatch.setenv("MARU_E2E_OUT", "a-run")
    unseen = 3  # one of its effects is such that nobody could have seen it
    assert cli.execute(["gain", "--judge", "ran", "--out", "there"]) == unseen
    written = {
        "junit.xml",
        *(f"{what}.{form}" for what in ("gain", "report") for form in ("json", "md", "html", "csv")),
    }
    assert {path.name for path in (tmp_path / "there").iterdir()} == written
    assert {path.name for path in (tmp_path / "ran").iterdir()} == {"recording.jsonl.gz"}
    assert cli.execute(["gain", "--judge", "ran"]) == unseen
    assert {path.name for path in (tmp_path / "ran").iterdir()} == written | {"recording.jsonl.gz"}
    assert not (tmp_path / "a-run").exists()
