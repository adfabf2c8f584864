"""Somebody else's adapter: found by entry point or place, or refused in one sentence before anything starts."""

from __future__ import annotations

import pytest

from e2e.base.errors import SettingsError
from e2e.connectors.embedded import Embedded
from e2e.connectors.table import load, names
from e2e.connectors.third_party import lacks

MODULES = {
    "theirs_good": "from dataclasses import dataclass\nfrom e2e.connectors.embedded import Embedded\n"
    "@dataclass(frozen=True)\nclass Mine(Embedded):\n    python: str = ''\n    server: str | None = None\n"
    "class Plain(Embedded):\n    pass\n"
    "class Needs(Embedded):\n    __init__ = lambda self, x: None\n"
    "class Former(Embedded):\n    has_counters = True\n    longest_prompt = None\n"
    "class Alone:\n    name = 'alone'\n"
    "from e2e.base.connector import Adapter\nclass Half(Adapter):\n    name = 'half'\nfunction = lambda: None\n",
    "theirs_raises": "raise RuntimeError('no\\ndevice.')\n",
    "theirs_ends": "import sys; sys.exit(0)\n",
    "theirs_needs": "import surely_not_installed_here\n",
    "theirs_syntax": "def (:\n",
}


@pytest.fixture(autouse=True)
def theirs(tmp_path, monkeypatch):
    for name, text in MODULES.items():
        (tmp_path / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def distribution(folder, name, *points):
    about = folder / f"{name}-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("\n".join(["[maru_e2e.connectors]", *points]) + "\n")


def test_by_place_with_what_its_fields_take():
    found = load("theirs_good:Mine", pool_bytes=5, server="h:1", python="/their/python")
    assert (found.pool_bytes, found.server, found.python) == (5, "h:1", "/their/python")
    assert isinstance(load("theirs_good:Plain"), Embedded)


def test_by_entry_point(theirs):
    distribution(theirs, "theirs", "theirs = theirs_good:Mine")
    assert type(load("theirs")).__name__ == "Mine"
    assert "theirs" in names()


def test_no_package_stands_in_for_ours(theirs):
    distribution(theirs, "theirs", "embedded = theirs_raises:Mine")
    assert type(load("embedded")) is Embedded


def test_two_packages_of_one_name_are_both_named(theirs):
    distribution(theirs, "one", "theirs = theirs_good:Mine")
    distribution(theirs, "two", "theirs = theirs_good:Plain")
    with pytest.raises(SettingsError, match=r"'theirs' is offered by (one and two|two and one); uninstall one"):
        load("theirs")


REFUSED = [
    ("theirs_raises:Mine", r"importing theirs_raises fails \(RuntimeError: no device\)"),
    ("theirs_ends:Mine", r"importing theirs_ends fails \(SystemExit: 0\)"),
    ("theirs_syntax:Mine", "importing theirs_syntax fails .SyntaxError"),
    ("theirs_needs:Mine", "theirs_needs needs surely_not_installed_here, which is not installed here"),
    ("theirs_lost:Mine", "there is no module theirs_lost; install it here, or set PYTHONPATH"),
    ("theirs_good.sub:Mine", "there is no module theirs_good.sub"),
    ("theirs_good:Lost", "theirs_good has no Lost; check its name"),
    ("theirs_good:function", "theirs_good:function is no class but function"),
    ("theirs_good:Half", "is no adapter, it lacks axes, engine_axes, description, config, hit_rule, step; see e2e"),
    ("theirs_good:Alone", r"is no adapter, it lacks the base class e2e\.base\.connector\.Adapter; see e2e"),
    (
        "theirs_good:Former",
        r"lacks abilities = Abilities\(longest_prompt=.*Abilities\(counters=\.\.\.\) in place of has_co",
    ),
    ("theirs_good:Needs", r"can't be made \(TypeError: .*\); an adapter needs no argument"),
]


@pytest.mark.parametrize(("place", "says"), REFUSED)
@pytest.mark.parametrize("way", ["place", "entry point"])
def test_whatever_keeps_it_from_being_an_adapter_is_one_sentence(theirs, place, says, way):
    if way == "entry point":
        distribution(theirs, "theirs", f"theirs = {place}")
    with pytest.raises(SettingsError, match=says) as caught:
        load(place if way == "place" else "theirs")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("word", ["theirs_good:", ":Mine", "a b:Mine", "http://x"])
def test_what_is_no_place_of_a_class(word):
    with pytest.raises(SettingsError, match=r"is no place of a class; write package\.module:Class"):
        load(word)


def test_ours_lack_nothing():
    assert lacks(Embedded) == []
