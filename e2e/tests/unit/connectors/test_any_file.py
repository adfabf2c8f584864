"""Whatever stands in a connector's or a grid's file: a sentence that names it, or an adapter whose every cell can be
started. Never a foreign exception."""

import copy
import datetime
import json
import re
from math import inf, nan

from hypothesis import example, given, settings
from hypothesis import strategies as st

from e2e.base.errors import SettingsError
from e2e.connectors.table import load
from e2e.grid.cells import expand
from e2e.grid.selection import Selection
from e2e.settings.parsers import grid

WHOLE = {
    "connector": {
        "name": "mine", "class": "Mine", "module_path": "my.kv", "granularity": 256, "hold_back": 1,
        "short_by": 0, "may_miss": False,
        "longest_prompt": 4000, "kv_role": "kv_both", "kv_load_failure_policy": "fail", "engine_args": ["--x"],
        "extra": {"a": "{pool_dir}", "b": {"c": [1, 2.0, True]}}, "env": {"PYTHONPATH": "/x", "A": "{store.address}"},
        "axes": {"overlap": ["off", "on"], "chunk_tokens": [128, 256], "variant": ["old", "new"]},
        "when": {"overlap": {"on": {"engine_args": ["--y"], "extra": {"o": True}, "env": {"O": "1"}}}},
        "servers": [
            {
                "name": "store", "command": ["s", "{store.port}"], "ready": "listens", "useless": "fail", "need": 5,
                "probe": "tcp", "dax_folder": "{pool_dir}/p", "env": {"B": "2"}, "limit_s": 3.0, "cure": "start it",
            }
        ],
        "witness": {"name": "maru", "address": "{store.address}", "instance": "{pool_dir}"},
        "refuses": [{"multiple_of": 256, "why": "it kills the engine."}],
        "abilities": {"counters": True, "pool_bytes": 1 << 30, "salted": False, "waits_seen": False, "lossy": True},
    }
}  # fmt: skip
GRID = {"grid": {"layout": ["NHD", "HND"], "overlap": [True, "off"], "chunk_tokens": [128], "dtype": "auto"}}
WORDS = st.sampled_from(
    [
        "",
        "x",
        "layout",
        "clas",
        "env",
        "address",
        "a.b",
        "a=b",
        "na me",
        "[",
        "on",
        "{pool_dir}",
        "h:70000",
        "\0",
        "a\nb",
    ]
)
VALUES = st.recursive(
    st.sampled_from([0, -1, 1, 10**30, 1.5, nan, inf, True, False, datetime.date(2026, 1, 1)]) | WORDS,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(WORDS, inner, max_size=2),
    max_leaves=4,
)


def paths(value, path=()):
    """Of everything inside, outermost first."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in inner:
        yield (*path, key)
        yield from paths(part, (*path, key))


@st.composite
def changed(draw, whole):
    """The whole file with one or two things replaced, left out, renamed or added."""
    content = copy.deepcopy(whole)
    for _ in range(draw(st.integers(1, 2))):
        *outer, key = draw(st.sampled_from(list(paths(content)) or [("connector",)]))
        place = content
        for step in outer:
            place = place[step]
        how = draw(st.sampled_from(["replace", "leave out", "rename", "add"]))
        if how == "replace":
            place[key] = draw(VALUES)
        elif isinstance(place, dict) and how != "leave out":
            place[draw(WORDS)] = place.pop(key) if how == "rename" and key in place else draw(VALUES)
        elif isinstance(place, list) or key in place:
            del place[key]
    return content


def toml(value) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key)} = {toml(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml, value)) + "]"
    if isinstance(value, datetime.date):
        return value.isoformat()
    return json.dumps(value) if isinstance(value, str | bool | int) else str(value)


def write(folder, name, content) -> str:
    path = folder / name
    path.write_text("".join(f"{json.dumps(key)} = {toml(value)}\n" for key, value in content.items()))
    return str(path)


def test_the_whole_files_are_good(tmp_path):
    adapter = load(write(tmp_path, "c.toml", WHOLE))
    found = expand(Selection(grid(write(tmp_path, "g.toml", GRID))), adapter)
    assert len(found.cells) == 2 * 2 * 2
    usable(adapter, found)


def tried(make):
    """(what it makes, None) or (None, why it was refused)."""
    try:
        return make(), None
    except SettingsError as error:
        return None, str(error)


def usable(adapter, found):
    for cell in found.cells:
        config = adapter.config(cell, pool_dir="/pool", block_size=16)
        json.dumps(config.as_kv_transfer_config(), allow_nan=False)
        words = [*config.engine_args, *config.env, *config.env.values()]
        for service in config.services:
            words += [*service.argv, *service.env, *service.env.values()]
            words += filter(None, [service.address, service.within and service.within.folder])
            assert 0 < service.limit_s < inf
            assert not service.address or 0 < int(service.address.rpartition(":")[2]) < 65536
            re.compile(f"{service.ready or ''}{service.useless or ''}")
        assert all(isinstance(word, str) and "\0" not in word for word in words)
        assert not any("=" in name for name in config.env)
        assert adapter.hit_rule(cell, block_size=16).external(1000) >= 0
        assert adapter.refuses(cell, 1001) is None or isinstance(adapter.refuses(cell, 1001), str)
        step = adapter.step(cell, block_size=16)
        assert step is None or step > 0


@given(content=changed(WHOLE))
@settings(max_examples=300, deadline=None)
@example(content={"connector": {**WHOLE["connector"], "env": {"\0": "1"}}})
@example(content={"connector": {**WHOLE["connector"], "servers": [{"name": "s", "command": ["s"], "ready": "["}]}})
@example(content={"connector": {**WHOLE["connector"], "servers": [{"name": "s", "address": "h:70000"}]}})
@example(content={"connector": {**WHOLE["connector"], "servers": [{"name": "s", "command": ["s"], "limit_s": inf}]}})
def test_a_connector_file_is_refused_in_words_or_can_be_used(tmp_path_factory, content):
    path = write(tmp_path_factory.mktemp("file"), "c.toml", content)
    adapter, why = tried(lambda: load(path))
    if why:
        assert why.startswith(f"{path}: ")
        return
    found, why = tried(lambda: expand(Selection(), adapter))
    if why:
        assert why.startswith(f"connector {adapter.name}")
        return
    usable(adapter, found)


@given(content=changed(GRID))
@settings(max_examples=300, deadline=None)
def test_a_grid_file_is_refused_in_words_or_gives_cells(tmp_path_factory, content):
    path = write(tmp_path_factory.mktemp("file"), "g.toml", content)
    found, why = tried(lambda: expand(Selection(grid(path)), load("embedded")))
    assert path in why if why else found.cells or found.invalid
