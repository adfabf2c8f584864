import os
import re
import signal
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path
from types import ModuleType

import pytest

from e2e import cli
from e2e.base.errors import EngineRefused, SettingsError, Stopped
from e2e.settings import device


@pytest.fixture(autouse=True)
def elsewhere(monkeypatch, tmp_path):
    monkeypatch.setattr(device, "has_gpu", lambda: False)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def rig(monkeypatch):
    """Stands in for the room that runs and judges; ``rig.does`` is called with what the command line hands over."""
    module = ModuleType("e2e.run")
    module.does = lambda given: 0
    module.run = lambda given: module.does(given)
    module.rejudge = lambda folder, out: module.does((folder, out))
    monkeypatch.setitem(sys.modules, "e2e.run", module)
    return module


def fail(error):
    def does(given):
        raise error

    return does


def test_exit_code_of_the_run_is_the_exit_code(rig):
    for code in (0, 1, 3, 4):
        rig.does = lambda given, code=code: code
        assert cli.execute(["run"]) == code


def test_settings_reach_the_run(rig, tmp_path):
    seen = []
    rig.does = lambda given: seen.append(given) or 0
    words = "run --cell layout=HND --cell layout=NHD,overlap=on --lengths 385 --connector example --strict --out o"
    assert cli.execute(words.split()) == 0
    (settings,) = seen
    assert settings.cells == ({"layout": "HND"}, {"layout": "NHD", "overlap": "on"})
    assert (settings.lengths, settings.connector, settings.strict, str(settings.out)) == ((385,), "example", True, "o")


def test_judge_gets_its_folder(rig, tmp_path):
    seen = []
    rig.does = lambda given: seen.append(given) or 3
    (tmp_path / "recording.jsonl").write_text("")
    assert cli.execute(["judge", str(tmp_path)]) == 3
    assert cli.execute(["judge", str(tmp_path), "--out", "elsewhere"]) == 3
    assert seen == [(tmp_path, None), (tmp_path, Path("elsewhere"))]


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (SettingsError("wrong thing; use the right one."), 2, "maru-e2e: wrong thing; use the right one.\n"),
        (EngineRefused("the engine refused."), 4, "maru-e2e: the engine refused.\n"),
    ],
)
def test_errors_are_one_sentence_and_their_exit_code(rig, capsys, error, code, said):
    rig.does = fail(error)
    assert cli.execute(["run"]) == code
    assert capsys.readouterr().err == said


def test_unforeseen_error_keeps_its_trace_with_the_run(rig, capsys, tmp_path):
    rig.does = fail(ZeroDivisionError("deep inside"))
    assert cli.execute(["run", "--out", "o"]) == 70
    said = capsys.readouterr().err
    assert said.startswith("maru-e2e: the rig itself failed (ZeroDivisionError); the trace is in ")
    assert "/o/crash-" in said
    assert "Traceback" not in said
    (trace,) = (tmp_path / "o").glob("crash-*.txt")
    assert "deep inside" in trace.read_text()


@pytest.mark.parametrize(
    ("error", "code"), [(KeyboardInterrupt(), 130), (Stopped(signal.SIGINT), 130), (Stopped(signal.SIGTERM), 143)]
)
def test_interrupt_says_how_to_go_on_with_what_was_recorded(rig, capsys, error, code):
    def record_and_stop(given):
        given.out.mkdir()
        given.recording.write_text("")
        raise error

    rig.does = record_and_stop
    assert cli.execute(["run", "--out", "o"]) == code
    assert capsys.readouterr().err == "maru-e2e: stopped by a signal; maru-e2e run --resume --out o continues it.\n"


def test_interrupt_before_anything_was_recorded(rig, capsys):
    rig.does = fail(Stopped(signal.SIGINT))
    assert cli.execute(["run", "--out", "o"]) == 130
    assert capsys.readouterr().err == "maru-e2e: stopped by a signal.\n"


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ([], "give a command, such as run; see maru-e2e --help."),
        (["frob"], "'frob' is no command; use run, faults, gain, "),
        (["rum"], "'rum' is no command; did you mean run?"),
        (["run", "--nope"], "--nope is unknown; see --help of the command."),
        (["run", "--max-token", "1"], "--max-token is unknown; did you mean --max-tokens?"),
        (["run", "--max-tokens", "x"], "--max-tokens: 'x' is no whole number; give one from 1 on."),
        (["run", "--max-tokens"], "--max-tokens is missing a value"),
        (["run", "--model", "a", "--model", "b"], "--model stands twice; give it once."),
        (["run", "--cell", "layout=NDH"], "--cell: axis layout: 'NDH' is unknown; use NHD or HND."),
        (["run", "over"], "'over' is one word too many"),
        (["cells", "--connector", "exmaple"], "did you mean example?"),
        (["cells", "--connector", "example", "--cell", "overlap=on"], "connector example has no axis overlap"),
        (["judge", "nowhere"], "nowhere holds no recording.jsonl; give the folder of a run."),
        (["judge"], "FOLDER is missing a value"),
    ],
)
def test_bad_usage_is_one_line_and_exit_code_2(rig, capsys, words, sentence):
    assert cli.execute(words) == 2
    said = capsys.readouterr().err
    assert sentence in said
    assert said.count("\n") == 1


def test_cells_lists_keys_and_reasons(capsys):
    assert cli.execute(["cells", "--cell", "layout=HND,load=sync"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split() == ["HND-chunkwise-overlap_off-index", "HND"]
    assert "cells: 4" in lines
    assert "engine keys: 1" in lines
    (invalid,) = [line for line in lines if line.startswith("invalid: ")]
    assert "needs load=async" in invalid
    assert invalid.endswith("and 3 more)")


def test_cells_says_what_collapsed(capsys):
    assert cli.execute(["cells", "--connector", "example"]) == 0
    assert "axes without a choice here: storage_format, overlap, placement" in capsys.readouterr().out


def test_cells_without_any_is_bad_usage(capsys):
    assert cli.execute(["cells", "--cell", "overlap=on,load=sync"]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("overlap=on needs load=async") == 1
    assert said.err.count("\n") == 1


def test_cells_takes_what_a_run_takes(capsys, tmp_path):
    (tmp_path / "run.toml").write_text('cell = "layout=HND"\nmax-tokens = 4\nout = "somewhere"\n')
    assert cli.execute(["cells", "--config", "run.toml"]) == 0
    assert "cells: 8" in capsys.readouterr().out
    assert not (tmp_path / "somewhere").exists()


def test_help_names_every_command(capsys):
    assert cli.execute(["--help"]) == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in ("run", "judge", "cells"))
    assert cli.execute(["-h"]) == 0
    assert capsys.readouterr().out == shown


@pytest.mark.parametrize(
    ("command", "flag", "shown"),
    [
        ("run", "--max-tokens", "Tokens to generate per request. [default: 8]"),
        ("run", "--prompts", "How many prompt lengths to solve. [default: 3]"),
        ("run", "--digests --no-digests", "Hash KV in the engine. [default: on]"),
        ("run", "--out", "Folder of the run. [default: results/<UTC time>]"),
        ("faults", "--max-tokens", "Tokens to generate per request. [default: 4]"),
        ("faults", "--prompts", "How many prompt lengths to solve. [default: 2]"),
        ("placement", "--out", "Folder for the results. [default: results/placement]"),
        ("gain", "--repeats", "Pairs per length, concurrency, and look or round. [default: 10]"),
    ],
)
def test_help_shows_the_defaults_that_hold(capsys, command, flag, shown):
    assert cli.execute([command, "--help"]) == 0
    text = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert re.search(rf"{flag} (?:[A-Z]+ )?{re.escape(shown)}", text)


def test_version(capsys):
    assert cli.execute(["--version"]) == 0
    assert capsys.readouterr().out.strip() == version("maru-e2e")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_knows_commands_and_flags(capsys, shell):
    assert cli.execute(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert "faults" in script
    assert "max-tokens" in script


def test_bash_takes_the_completion(tmp_path):
    (tmp_path / "script").write_text(cli.app.generate_completion(shell="bash"))
    asks = 'source ./script; COMP_WORDS=(maru-e2e run --max-to); COMP_CWORD=2; _maru_e2e; echo "${COMPREPLY[@]}"'
    shown = subprocess.run(["bash", "-c", asks], capture_output=True, text=True, timeout=30, check=True, cwd=tmp_path)
    assert shown.stdout.strip() == "--max-tokens"


@pytest.mark.parametrize("module", ["e2e", "e2e.cli", "maru_e2e"])
def test_as_a_module(module):
    shown = subprocess.run(
        [sys.executable, "-m", module, "--version"], capture_output=True, text=True, timeout=60, check=True
    )
    assert shown.stdout.strip() == version("maru-e2e")


@pytest.mark.parametrize(
    ("missing", "words", "said"),
    [
        ("cyclopts", "judge x", "the installation is broken, install maru-e2e again."),
    ],
)
def test_a_package_that_is_missing_is_named(tmp_path, missing, words, said):
    script = (
        f"import sys; sys.modules[{missing!r}] = None; sys.argv = ['maru-e2e', *{words.split()}]; "
        "from maru_e2e.__main__ import main; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False, cwd=tmp_path
    )
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert said in done.stderr


def test_nothing_but_a_judgement_gives_1(rig, capsys):
    rig.does = fail(SystemExit(1))
    assert cli.execute(["run", "--out", "o"]) == 70
    assert "the rig itself failed (SystemExit)" in capsys.readouterr().err


def test_a_sentence_is_one_line_without_escapes(rig, capsys):
    rig.does = fail(EngineRefused("the engine said \x1b[31m한국어\n\u202eevil"))
    assert cli.execute(["run"]) == 4
    assert capsys.readouterr().err == "maru-e2e: the engine said \\x1b[31m한국어\\n\\u202eevil\n"


WAITS = """
import sys, time
from types import ModuleType
from e2e import cli
module = ModuleType("e2e.run")
def run(settings):
    try:
        print("running", flush=True)
        time.sleep(60)
    finally:
        print("torn down", flush=True)
module.run = run
sys.modules["e2e.run"] = module
sys.argv = ["maru-e2e", "run", "--device", "cpu", "--out", "o"]
cli.main()
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
@pytest.mark.parametrize("shell", ["", "trap '' INT;"], ids=["foreground", "background"])
def test_signals_end_a_run_with_its_teardown(tmp_path, number, shell):
    """A shell has ^C ignored in what it starts in the background."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "cwd": tmp_path, "env": os.environ}
    command = ["sh", "-c", f'{shell} exec "$@"', "sh", sys.executable, "-c", WAITS]
    with subprocess.Popen(command, **pipes) as rig:
        assert rig.stdout.readline() == "running\n"
        began = time.monotonic()
        rig.send_signal(number)
        out, err = rig.communicate(timeout=30)
    assert rig.returncode == 128 + number
    assert out == "torn down\n"
    assert err.startswith("maru-e2e: stopped by a signal")
    assert time.monotonic() - began < 20


@pytest.mark.parametrize(("first", "code"), [("Stopped(15)", 143), ("corrupt", 1)])
def test_a_second_signal_changes_no_exit_code(tmp_path, first, code):
    """It comes while the first is told; ``corrupt``: a corrupt cell had been judged on the way out."""
    script = """
import os, signal, sys
from types import ModuleType
from e2e import cli
from e2e.base.errors import Stopped
corrupt = Stopped(15)
corrupt.exit_code = 1
module = ModuleType("e2e.run")
def run(settings):
    raise FIRST
def tell(code, call):
    os.kill(os.getpid(), signal.SIGINT)
    return code
cli._say_stopped = tell
module.run = run
sys.modules["e2e.run"] = module
sys.argv = ["maru-e2e", "run", "--device", "cpu", "--out", "o"]
cli.main()
""".replace("FIRST", first)
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False, cwd=tmp_path
    )
    assert (done.returncode, done.stderr) == (code, "")


def test_nohup_is_heeded(tmp_path):
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "cwd": tmp_path, "env": os.environ}
    command = ["sh", "-c", "trap '' HUP; exec \"$@\"", "sh", sys.executable, "-c", WAITS]
    with subprocess.Popen(command, **pipes) as rig:
        assert rig.stdout.readline() == "running\n"
        rig.send_signal(signal.SIGHUP)
        with pytest.raises(subprocess.TimeoutExpired):
            rig.wait(timeout=1)
        rig.send_signal(signal.SIGTERM)
        assert rig.communicate(timeout=30)[0] == "torn down\n"


def test_importing_the_command_line_pulls_no_engine():
    names = "('torch', 'vllm', 'transformers', 'scipy', 'docker', 'requests')"
    heavy = f"import sys, e2e.cli; print([m for m in {names} if m in sys.modules])"
    shown = subprocess.run([sys.executable, "-c", heavy], capture_output=True, text=True, timeout=60, check=True)
    assert shown.stdout.strip() == "[]"
