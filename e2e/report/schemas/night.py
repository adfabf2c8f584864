"""What night.json holds, and what each field of it is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from e2e.report.nightly import CellFigures, GainFigures, Step
from e2e.report.schemas.closed import SPEEDUP, STORE_COST, TIMES, VERDICT, VERSION, Closed


class ToldNight(Closed):
    """One night, as later ones compare with it."""

    schema: Literal["maru-e2e/night/2"]
    good: bool
    code: Literal[0, 1, 2, 3, 4, 70]
    name: str
    steps: list[Step]
    cells: dict[str, CellFigures]
    machine: str
    gaps: dict[str, str]
    gain: dict[str, GainFigures]


WORDS: Mapping[str, Mapping[str, str]] = {
    "ToldNight": {
        "schema": VERSION,
        "good": "Is the exit code 0? Only then do later nights compare with it.",
        "code": "Exit code of the gate.",
        "name": "Of its folder, the UTC time at which it began.",
        "steps": "What was run, in this order.",
        "cells": "Step/cell id -> figures.",
        "machine": "What must be equal before times are compared.",
        "gaps": "Step of a grid -> what it owes, whatever its exit code says.",
        "gain": "Branch and requests at once -> change of TTFT.",
    },
    "Step": {
        "name": "What it is, and of which connector and grid.",
        "code": "Exit code of its command.",
        "seconds": "Wall time.",
        "command": "Its command line.",
    },
    "CellFigures": {
        **TIMES,
        "verdict": VERDICT,
        "reason": "Of the worst finding; null for a pass.",
        "hits": "External tokens, as vLLM counts them.",
        "settings": "Axis -> value.",
        "speedup": SPEEDUP,
        "store_cost": STORE_COST,
    },
    "GainFigures": {
        "median": "Relative change: -0.1 is 10 % less.",
        "low": "Lower end of its 95 % interval.",
        "high": "Upper end of it.",
    },
}  # fmt: skip
