"""Connectors that are named by a package's entry point or by the place of a class."""

from __future__ import annotations

from row import Row


def at(name: str, word: str, *says: str) -> Row:
    return Row(name, ("cells", "--connector", word), 2, says)


ROWS = (
    at("adapter: no such module", "no_such_package.kv:Mine", "no module no_such_package", "PYTHONPATH"),
    at("adapter: no such submodule", "json.kv:Mine", "no module json.kv", "install it here"),
    at("adapter: no such class", "json:Mine", "json has no Mine", "check its name"),
    at("adapter: a function", "json:loads", "is no class but function", "name an adapter's class"),
    at("adapter: a module", "json:decoder", "is no class but module"),
    at(
        "adapter: another class",
        "json:JSONDecoder",
        "is no adapter",
        "lacks the base class e2e.base.connector.Adapter",
        "see e2e.base.connector",
    ),
    at("adapter: vLLM's class instead of the adapter", "builtins:object", "is no adapter", "the base class"),
    at("adapter: no class after the colon", "json:", "no place of a class", "package.module:Class"),
    at("adapter: no module before the colon", ":Mine", "no place of a class", "package.module:Class"),
    at("adapter: an address", "http://host:1", "no place of a class", "package.module:Class"),
    at("adapter: a file", "./mine.py:Mine", "no place of a class", "package.module:Class"),
    Row(
        "gain: no such class",
        ("gain", "--a", "embedded", "--b", "json:Mine"),
        2,
        ("json has no Mine",),
    ),
    Row(
        "gain: an axis with too few pairs for a figure",
        ("gain", "--axis", "placement", "index", "kernel", "--looks", "1", "--repeats", "4", "--lengths", "777"),
        2,
        ("--repeats 4 makes 4 pairs", "a figure takes 6", "give 6 or more"),
    ),
    Row(
        "gain: connectors with too few pairs for a figure",
        ("gain", "--a", "embedded", "--b", "example", "--repeats", "2", "--rounds", "2", "--lengths", "777,777"),
        2,
        ("--repeats 2 makes 4 pairs", "give 3 or more"),
    ),
    Row(
        "gain: no pool of its own",
        ("gain", "--a", "example", "--b", "decode-bench", "--pool-size", "1G"),
        2,
        ("connector example has no pool of its own", "leave out --pool-size"),
    ),
    Row(
        "a pace for a pool that has none",
        ("cells", "--connector", "offloading", "--pool-pace", "20GB/s"),
        2,
        ("connector offloading has no pool whose pace can be set", "leave out --pool-pace"),
    ),
    Row("connector by variable", ("cells",), 2, ("json has no Mine",), environ={"MARU_E2E_CONNECTOR": "json:Mine"}),
)
