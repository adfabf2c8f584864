from __future__ import annotations

import sys

import pytest

from e2e.base.errors import RigError, SettingsError
from e2e.stack import model
from e2e.stack.model import prepare_model

FILES = {"config.json": "{}", "model.safetensors": "weights", "tokenizer.json": "{}"}


def fill(folder, files=FILES):
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name).write_text(text)
    return folder


def test_a_whole_folder_is_taken_as_it_is(tmp_path):
    assert prepare_model(str(fill(tmp_path / "m"))) == str(tmp_path / "m")


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("config.json", None, "has no config.json"),
        ("config.json", "{", "config.json can't be read"),
        ("model.safetensors", None, "has no weights"),
        ("model.safetensors", "", "has no weights"),
        ("tokenizer.json", None, "has no tokenizer"),
    ],
)
def test_what_a_folder_lacks_is_one_sentence(tmp_path, name, text, says):
    files = {key: value for key, value in FILES.items() if key != name} | ({} if text is None else {name: text})
    with pytest.raises(SettingsError, match=says) as caught:
        prepare_model(str(fill(tmp_path / "m", files)))
    assert "\n" not in str(caught.value)
    assert str(tmp_path / "m") in str(caught.value)


def test_a_hub_id_is_passed_on():
    assert prepare_model("org/some-model") == "org/some-model"


@pytest.mark.parametrize("wrong", ["/no/such/folder", "./nowhere", "smolm2", "a/b/c"])
def test_neither_folder_nor_id(wrong):
    with pytest.raises(SettingsError, match="no folder that exists"):
        prepare_model(wrong)


def test_a_file_is_no_folder(tmp_path):
    (tmp_path / "x.gguf").write_text("x")
    with pytest.raises(SettingsError, match="is a file"):
        prepare_model(str(tmp_path / "x.gguf"))


def test_the_bundled_one_is_made_once(tmp_path, monkeypatch):
    made = []
    monkeypatch.setattr(model, "_package_file", lambda package, file, python: tmp_path / file)
    monkeypatch.setattr(model, "_convert", lambda source, target, python: made.append(fill(target)))
    cache = tmp_path / "cache"
    assert prepare_model("smollm2", cache_dir=cache) == prepare_model("smollm2", cache_dir=cache)
    assert len(made) == 1
    assert [path.name for path in cache.iterdir()] == ["smollm2-135m"]


def test_half_a_conversion_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(model, "_package_file", lambda package, file, python: tmp_path / file)
    monkeypatch.setattr(model, "_convert", lambda source, target, python: fill(target, {"config.json": "{}"}))
    with pytest.raises(SettingsError):
        prepare_model("smollm2", cache_dir=tmp_path / "cache")
    assert list((tmp_path / "cache").iterdir()) == []


def test_a_file_that_is_no_gguf(tmp_path):
    broken = tmp_path / "broken.gguf"
    broken.write_text("no model")
    with pytest.raises(RigError, match=r"broken\.gguf can't be converted") as caught:
        model._convert(broken, tmp_path / "out", sys.executable)
    assert "\n" not in str(caught.value)


def test_without_the_package(monkeypatch, tmp_path):
    monkeypatch.setitem(model.BUNDLED, "smollm2", ("x", "no_such_package_here", "x.gguf"))
    with pytest.raises(RigError, match="no-such-package-here is not installed"):
        prepare_model("smollm2", cache_dir=tmp_path)
