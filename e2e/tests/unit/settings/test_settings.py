import os
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from e2e.base.errors import RecordingError, SettingsError, UsageError
from e2e.base.event import SCHEMA
from e2e.grid.selection import GRIDS
from e2e.recording.journal import Journal
from e2e.settings import device, parsers, quantities
from e2e.settings.commands import FaultFlags, RunFlags
from e2e.settings.resolve import resolve as resolve_flags
from e2e.settings.resolve import resolve_selection
from e2e.settings.settings import Settings
from e2e.settings.sources import read


@pytest.fixture(autouse=True)
def on_a_cpu(monkeypatch, tmp_path):
    monkeypatch.setattr(device, "has_gpu", lambda: False)
    monkeypatch.chdir(tmp_path)


def resolve(given, **about):
    return resolve_flags(read(RunFlags, given), **about)


def begun(out, settings, command="run"):
    with Journal(out / "recording.jsonl") as journal:
        journal.record(
            "run.begin", run_id="r", attempt=1, schema=SCHEMA, command=["maru-e2e", command], versions={}, machine={},
            settings=settings, wall_time="",
        )  # fmt: skip


def test_nothing_given_is_the_default_grid_on_this_machine():
    settings = resolve({}, argv=["run"])
    assert settings.selection.grid == GRIDS["default"]
    assert (settings.connector, settings.model, settings.device, settings.attention) == (
        "embedded", "smollm2", "cpu", "strided",
    )  # fmt: skip
    assert settings.axis_defaults == {"dtype": "bfloat16"}
    assert settings.axis_fixed == {}
    assert settings.out.parent.name == "results"
    assert not settings.out.exists()
    assert settings.argv == ("run",)


def test_every_flag_arrives(tmp_path):
    (tmp_path / "c.toml").write_text('[connector]\nname = "c"\nclass = "C"\n')
    flags = {
        "grid": "full", "cells": ["layout=HND", "overlap=on"], "connector": "c.toml", "attach": "http://h:1/",
        "lengths": "385, 1041", "out": str(tmp_path / "o"), "model": "m/x", "strict": "true", "device": "cpu",
        "attention": "stock", "pool_bytes": "1.5G", "kv_cache_bytes": "512M", "max_tokens": "4", "start_limit_s": "9.0",
        "request_limit_s": "8",
    }  # fmt: skip
    settings = resolve(flags)
    assert settings.selection.grid == GRIDS["full"]
    assert settings.cells == ({"layout": "HND"}, {"overlap": "on"})
    assert settings.connector == str(tmp_path / "c.toml")
    assert settings.attach == "http://h:1"
    assert settings.lengths == (385, 1041)
    assert settings.recording == tmp_path / "o" / "recording.jsonl"
    assert (settings.pool_bytes, settings.kv_cache_bytes) == (3 << 29, 512 << 20)
    assert (settings.max_tokens, settings.start_limit_s, settings.request_limit_s) == (4, 9.0, 8.0)
    assert settings.strict is True


def test_settings_survive_json():
    settings = resolve({"grid": "full", "cells": ["chunk_tokens=64"], "lengths": "9"}, argv=["a"])
    assert Settings.recorded(settings.as_json()) == settings


def test_settings_are_frozen():
    with pytest.raises(ValueError, match="frozen"):
        resolve({}).model = "other"


def test_stock_attention_on_a_cpu_has_one_layout_and_larger_blocks():
    settings = resolve({"attention": "stock"})
    assert settings.axis_fixed == {"layout": "HND"}
    assert settings.axis_defaults == {"dtype": "bfloat16", "block_size": 128}


def test_attached_engine_decides_for_itself():
    settings = resolve({"attach": "http://127.0.0.1:8000"})
    assert (settings.attention, settings.axis_fixed, settings.axis_defaults) == (None, {}, {})


def test_gpu_is_chosen_where_there_is_one(monkeypatch):
    monkeypatch.setattr(device, "has_gpu", lambda: True)
    settings = resolve({})
    assert (settings.device, settings.attention, settings.axis_defaults) == ("cuda", None, {})
    assert resolve({"device": "cpu"}).device == "cpu"
    with pytest.raises(SettingsError, match="strided is a CPU backend"):
        resolve({"attention": "strided"})


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        ({"grid": "ful"}, "grid: 'ful' is unknown; did you mean full?"),
        (
            {"grid": "no.toml"},
            "grid: 'no.toml' can't be read (No such file or directory).",
        ),
        ({"grid": "bad.toml"}, "grid: 'bad.toml' is no TOML"),
        ({"cells": ["layout=NDH"]}, "cells: axis layout: 'NDH' is unknown; use NHD or HND."),
        ({"lengths": "12,x"}, "lengths: 'x' is no number of tokens; write 385,1041."),
        ({"lengths": ""}, "lengths: '' is no number of tokens; write 385,1041."),
        ({"attach": "localhost:8000"}, "attach: 'localhost:8000' is no address; write http://127.0.0.1:8000."),
        ({"attach": "http://h:99999"}, "attach: 'http://h:99999' is no address (Port out of range 0-65535)"),
        ({"device": "cuda"}, "device: no NVIDIA GPU answers here"),
        ({"device": "tpu"}, "device: 'tpu' is unknown; use auto, cpu or cuda."),
        ({"pool_bytes": "0"}, "pool_bytes: '0' is no size"),
        ({"kv_cache_bytes": "2X"}, "kv_cache_bytes: '2X' is no size"),
        ({"max_tokens": "0"}, "max_tokens: 0 is too small"),
        ({"start_limit_s": "nan"}, "start_limit_s: nan is too small"),
        ({"api_key": "a b"}, "api_key: it is empty or has a character that no HTTP header takes"),
        ({"prompts_dir": "nowhere"}, "prompts_dir: 'nowhere' is no folder; give one with texts (*.txt)."),
        ({"prompts_dir": "ran"}, "prompts_dir: 'ran' has no text; put at least one *.txt into it."),
        ({"engine_python": "no-python"}, "engine_python: 'no-python' is no program that can be run"),
        ({"out": "bad.toml"}, "out: 'bad.toml' is a file; give a folder."),
        ({"out": "ran"}, "--out: ran holds a run already; add --resume to continue it"),
        ({"resume": "true"}, "--resume: there is no run under results; give its folder with --out."),
        ({"resume": "true", "out": "nowhere"}, "no recording can be read at nowhere/recording.jsonl"),
        ({"resume": "true", "out": "ran", "model": "x/y"}, "--resume can't change model"),
        ({"resume": "true", "out": "gained"}, "--resume: gained is a comparison, which can't be continued"),
        ({"resume": "true", "out": "odd"}, "settings that this version can't use (max_tokens)"),
    ],
)
def test_what_cannot_be_gets_one_sentence(tmp_path, flags, sentence):
    (tmp_path / "bad.toml").write_text("= 1")
    begun(tmp_path / "ran", resolve({}).as_json())
    begun(tmp_path / "odd", {"max_tokens": "many"})
    begun(tmp_path / "gained", resolve({}).as_json(), command="gain")
    with pytest.raises(UsageError) as caught:
        resolve(flags)
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


def test_grid_file(tmp_path):
    (tmp_path / "g.toml").write_text('[grid]\nlayout = ["HND"]\nchunk_tokens = [128, 256]\n')
    assert resolve({"grid": "g.toml"}).selection.grid == ({"layout": ("HND",), "chunk_tokens": (128, 256)},)


def test_resume_takes_over_what_is_not_given(tmp_path):
    first = resolve({"cells": ["layout=HND"], "model": "a/b", "lengths": "385", "out": str(tmp_path / "ran")})
    begun(tmp_path / "ran", first.as_json())
    again = resolve({"resume": "true", "out": str(tmp_path / "ran"), "strict": "on", "model": "a/b"}, argv=["again"])
    assert (again.cells, again.model, again.lengths) == (first.cells, "a/b", (385,))
    assert (again.resume, again.strict, again.argv) == (True, True, ("again",))


def test_resume_without_a_folder_continues_the_newest(tmp_path):
    for number, name in enumerate(("b", "a")):
        begun(tmp_path / "results" / name, resolve({"max_tokens": str(number + 1)}).as_json())
        os.utime(tmp_path / "results" / name / "recording.jsonl", (number, number))
    assert resolve({"resume": "true"}).out.name == "a"
    assert resolve({"resume": "true"}).max_tokens == 2


def test_what_never_began_and_what_is_a_comparison_is_not_the_newest_run(tmp_path):
    begun(tmp_path / "results" / "run", resolve({"max_tokens": "5"}).as_json())
    begun(tmp_path / "results" / "gain", resolve({}).as_json(), command="gain")
    with Journal(tmp_path / "results" / "attach" / "recording.jsonl") as journal:
        journal.record("note", text="nobody answers")
    for number, name in enumerate(("run", "gain", "attach")):
        os.utime(tmp_path / "results" / name / "recording.jsonl", (number, number))
    assert resolve({"resume": "true"}).out.name == "run"


def test_a_self_test_is_resumed_with_what_it_was_given(tmp_path):
    first = resolve_flags(read(FaultFlags, {"prompts": "3", "out": "ran"}), self_test=True)
    assert (first.prompts, first.max_tokens, first.self_test) == (3, 4, True)
    begun(tmp_path / "ran", first.as_json())
    again = resolve_flags(read(FaultFlags, {"resume": "true", "out": "ran"}), self_test=True)
    assert (again.prompts, again.max_tokens) == (3, 4)
    assert resolve({"resume": "true", "out": "ran"}).self_test is True


def test_kill_before_the_first_event_leaves_a_folder_that_can_be_used(tmp_path):
    (tmp_path / "ran").mkdir()
    (tmp_path / "ran" / "recording.jsonl").write_text('{"seq": 0, "t_')
    assert resolve({"out": str(tmp_path / "ran")}).out == tmp_path / "ran"
    with pytest.raises(UsageError, match="nothing to resume"):
        resolve({"out": str(tmp_path / "ran"), "resume": "true"})


def test_recording_of_a_newer_schema_is_refused(tmp_path):
    (tmp_path / "recording.jsonl").write_text("[]\n")
    with pytest.raises(RecordingError, match="line 1"):
        resolve({"out": str(tmp_path)})


def test_selection_alone_looks_at_no_folder(tmp_path):
    begun(tmp_path / "results", resolve({}).as_json())
    assert resolve_selection(read(RunFlags, {"cells": ["layout=HND"]})).cells == ({"layout": "HND"},)


@given(st.integers(1, 2**50))
def test_sizes(number):
    assert quantities.size(str(number)) == number
    assert quantities.size(f"{number}K") == quantities.size(f"{number} KiB") == quantities.size(f"{number}kb")


PARSERS = (
    parsers.grid, parsers.cell, parsers.fault, parsers.connector, parsers.url, parsers.address, quantities.size,
    quantities.whole, quantities.seconds, parsers.switch, parsers.attention, parsers.model, parsers.key, parsers.texts,
    parsers.python, parsers.folder,
)  # fmt: skip


@pytest.mark.parametrize("parse", PARSERS, ids=lambda parse: parse.__name__)
@given(word=st.text(max_size=12))
def test_any_word_is_a_value_or_an_error_in_one_line(parse, word):
    try:
        parse(word)
        said = "a value"
    except (SettingsError, ValueError) as error:
        said = str(error)
    assert said.strip()
    assert "\n" not in said


def test_key_reaches_the_run_and_no_recording(tmp_path):
    argv = ["run", "--api-key", "sk-secret", "--api-key=sk-secret", "--attach", "http://h:1"]
    settings = resolve({"api_key": "sk-secret", "attach": "http://h:1"}, argv=argv)
    assert settings.api_key.get_secret_value() == "sk-secret"
    assert settings.argv == ("run", "--api-key", "(redacted)", "--api-key=(redacted)", "--attach", "http://h:1")
    assert "sk-secret" not in repr(settings) + str(settings.as_json())


def test_folder_of_prompts_and_the_engines_python_are_absolute(tmp_path):
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts" / "a.txt").write_text("a")
    (tmp_path / "python").symlink_to(sys.executable)
    settings = resolve({"prompts_dir": "texts", "engine_python": "./python"})
    assert settings.prompts_dir == tmp_path / "texts"
    assert settings.engine_python == tmp_path / "python"  # a virtual environment's Python is a link
