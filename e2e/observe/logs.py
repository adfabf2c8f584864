"""Picks telling lines out of an engine's log; pure, the caller reads the file."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

#: name -> pattern with named groups. vLLM's words, stable over 0.14 to 0.33 unless said.
PATTERNS: Mapping[str, re.Pattern[str]] = {
    name: re.compile(pattern)
    for name, pattern in {
        "load_recovered": r"Recovered from KV load failure",
        "load_failed": r"Failing (?P<requests>\d+) request\(s\) due to KV load failure",
        "kv_layout": r"Using (?P<layout>[A-Z]+) KV cache layout",  # 0.29 and newer: the long name, such as LBNHC
        "attention_backend": r"Using (?:AttentionBackendEnum\.)?(?P<backend>\w+) (?:attention )?backend\b",
        "prefix_reset": r"Successfully reset prefix cache",
        "prefix_reset_refused": r"Failed to reset prefix cache because some blocks \((?P<blocks>\d+)\)",
        "preempted": r"Preemptions: (?P<count>\d+)",
        "extension": r"Injected (?P<extension>.+) into (?P<worker>.+) for extended collective_rpc calls",
        "engine_dead": r"EngineDeadError|Engine core proc(?:ess)? died|EngineCore encountered a fatal error",
    }.items()
}


@dataclass(frozen=True)
class LogLine:
    """``number`` counts from 1. ``groups``: what the pattern's named groups held."""

    name: str
    number: int
    text: str
    groups: Mapping[str, str] = field(default_factory=dict)


def find_lines(text: str, patterns: Mapping[str, re.Pattern[str]] = PATTERNS) -> list[LogLine]:
    """Every line that a pattern occurs in, in order; a line that several patterns know is there for each."""
    found = []
    for number, line in enumerate(text.splitlines(), start=1):
        for name, pattern in patterns.items():
            if match := pattern.search(line):
                groups = {key: value for key, value in match.groupdict().items() if value is not None}
                found.append(LogLine(name, number, line.strip(), groups))
    return found


def count_lines(text: str, name: str) -> int:
    """How many lines the pattern ``name`` knows; ``prefix_reset`` tells a real reset where vLLM's reply does not."""
    return sum(1 for line in text.splitlines() if PATTERNS[name].search(line))
