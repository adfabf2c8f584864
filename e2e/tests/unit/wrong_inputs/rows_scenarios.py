"""Scenarios that there are not, or that are named where none is chosen."""

from __future__ import annotations

from pathlib import Path

from row import Row

_UNKNOWN = {
    "an unknown scenario": ("gremlin", "use replay"),
    "a scenario with a slip, with the name that was meant": ("repaly", "did you mean replay?"),
    "a scenario in capitals": ("REPLAY", "did you mean replay?"),
    "a scenario with blanks around it": (" replay ", "did you mean replay?"),
    "an empty scenario": ("", "use replay"),
    "a scenario by its file": ("replay.py", "did you mean replay?"),
    "a path as a scenario": ("../replay", "did you mean replay?"),
    "a pack with a slip": ("quik", "did you mean quick?"),
    "a pack in capitals": ("NIGHTLY", "did you mean nightly?"),
    "two packs in one word": ("quick,nightly", "is unknown"),
    "a pack by an adverb": ("quickly", "did you mean quick?"),
    "a pack with a number of cells": ("quick=2", "did you mean quick?"),
    "a scenario with a blank for its underscore": ("zero delay", "is unknown"),
    "every scenario by a star": ("*", "is unknown"),
}
_MINE = '[connector]\nname = "mine"\nclass = "Mine"\nmodule_path = "mine"\n'
_BOTH = ("run", "faults", "cells")
#: (connector, scenario) -> what the connector would have to state.
_LACKING = {
    ("example", "turns"): "next_turn and prefixes",
    ("example", "partial"): "prefixes",
    ("example", "zero_delay"): "slowed",
    ("example", "abort"): "slowed",
    ("lmcache", "turns"): "next_turn",
    ("lmcache", "zero_delay"): "slowed",
    ("lmcache", "abort"): "slowed",
    ("offloading", "turns"): "next_turn",
    ("offloading", "zero_delay"): "slowed",
    ("offloading", "abort"): "slowed",
}


def _write(name: str, text: str):
    def given(folder: Path) -> None:
        (folder / name).write_text(text)

    return given


ROWS = (
    *(
        Row(f"{name}, of {command}", (command, "--scenario", word), 2, (f"scenario {word!r} is unknown", hint))
        for command in _BOTH
        for name, (word, hint) in _UNKNOWN.items()
    ),
    *(
        Row(
            f"scenario {scenario} with {connector}", ("cells", "--connector", connector, "--scenario", scenario), 2,
            (f"scenario {scenario} needs a connector that states {needs} (", "widen --cell"),
        )
        for (connector, scenario), needs in _LACKING.items()
    ),
    Row("the second of two scenarios unknown", ("run", "--scenario", "replay", "--scenario", "crwd"), 2, ("'crwd'",)),
    Row("a pack and an unknown scenario", ("run", "--scenario", "quick", "--scenario", "gremlin"), 2, ("'gremlin'",)),
    Row("a pack of a comparison", ("gain", "--scenario", "quick", "--axis", "placement", "index", "kernel"), 2,
        ("--scenario",)),
    Row("a pack as an axis", ("run", "--cell", "scenario=quick"), 2, ("scenario is no axis", "--scenario NAME")),
    Row("a pack as a grid", ("run", "--grid", "quick"), 2, ("'quick' is unknown",)),
    Row(
        "an unknown pack in a variable", ("run",), 2, ("MARU_E2E_SCENARIO", "'quik' is unknown", "quick"),
        environ={"MARU_E2E_SCENARIO": "quik"},
    ),
    Row(
        "an unknown pack in a file", ("run", "--config", "c.toml"), 2, ("c.toml", "'quik' is unknown"),
        given=_write("c.toml", 'scenario = ["replay", "quik"]\n'),
    ),
    Row("no scenario after its flag", ("run", "--scenario"), 2, ("--scenario",)),
    Row(
        "an unknown scenario in a variable", ("run",), 2, ("MARU_E2E_SCENARIO", "'gremlin' is unknown", "use replay"),
        environ={"MARU_E2E_SCENARIO": "gremlin"},
    ),
    Row(
        "an unknown scenario in a file", ("run", "--config", "c.toml"), 2, ("c.toml", "'gremlin' is unknown"),
        given=_write("c.toml", 'scenario = "gremlin"\n'),
    ),
    Row(
        "a scenario in a file that is no word", ("run", "--config", "c.toml"), 2, ("c.toml", "scenario"),
        given=_write("c.toml", "scenario = 7\n"),
    ),
    *(
        Row(f"a scenario as an axis of {command}", (command, "--cell", "scenario=replay"), 2,
            ("scenario is no axis", "--scenario NAME"))
        for command in (*_BOTH, "gain")
    ),
    Row("a comparison of scenarios", ("gain", "--axis", "scenario", "replay", "crowd"), 2, ("scenario is no axis",)),
    Row(
        "a scenario as an axis of a grid file", ("run", "--grid", "g.toml"), 2, ("g.toml", "scenario is no axis"),
        given=_write("g.toml", '[grid]\nscenario = ["replay"]\n'),
    ),
    *(
        Row(
            f"scenario {name} of a connector that does not say that it {does}",
            ("run", "--scenario", name, "--connector", "c.toml"), 2,
            ("no cell is left to run", f"scenario {name} needs a connector that states", need),
            given=_write("c.toml", _MINE),
        )
        for name, need, does in (
            ("restart", "survives_restart", "outlives its engines"),
            ("second", "shared_store", "serves two engines"),
            ("cross", "survives_restart", "outlives its engines"),
            ("identity", "survives_restart", "outlives its engines"),
            ("eviction", "sized_pool", "has a pool of any size"),
            ("full", "sized_pool", "has a pool of any size"),
        )
    ),
    *(
        Row(f"scenario {name} in containers", ("run", "--scenario", name, "--launcher", "docker"), 2,
            (f"scenario {name} starts several engines on one store", "without --launcher docker"))
        for name in ("restart", "second", "cross", "identity")
    ),
    *(
        Row(f"room of scenario {name} as an axis", ("cells", "--scenario", name, "--cell",
            "kv_tokens=99"), 2, ("kv_tokens", "is unknown"))
        for name in ("preemption", "crowd")
    ),
    Row("a pool of any size, stated in a file, where no code makes one", ("run", "--connector", "c.toml"), 2,
        ("c.toml", "sized_pool"), given=_write("c.toml", _MINE + "\n[connector.abilities]\nsized_pool = true\n")),
    Row("a scenario of a comparison", ("gain", "--scenario", "replay", "--axis", "placement", "index", "kernel"), 2,
        ("--scenario",)),
)  # fmt: skip
