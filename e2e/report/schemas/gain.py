"""What gain.json holds, and what each field of it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from e2e.base.gain import Answer, Hidden, Launches, Overlap
from e2e.base.judgement import Ttft
from e2e.base.speed import LengthSpeed
from e2e.report.schemas.closed import VERSION, Closed, Table, Verdict


@dataclass(frozen=True)
class ToldAnswer(Answer):
    """One branch, at so many requests at once."""

    sentence: str = ""


class ToldTimeline(Closed):
    """One loaded request under the profiler."""

    branch: str
    side: Literal["a", "b"]
    length: int
    load_us: float
    share: float | None
    all_us: float
    layers: list[Hidden]


class ProvenCell(Closed):
    """What was measured was proven before."""

    id: str
    verdict: Verdict
    ttft: Ttft


class Gain(Closed):
    schema: Literal["maru-e2e/gain/3"]
    plan: Table
    measured_on: str
    cells: list[ProvenCell]
    copy_speed: float | None
    answers: list[ToldAnswer]
    ttft: list[LengthSpeed]
    launches: list[Launches]
    overlaps: list[Overlap]
    timelines: list[ToldTimeline]
    exit_code: int


_BRANCH = {"branch": "What both sides have in common."}
_SIDE = {**_BRANCH, "side": "a or b.", "length": "Tokens of the prompts."}
_OF_TTFT = "as a share of side a's TTFT"
WORDS: Mapping[str, Mapping[str, str]] = {
    "Gain": {
        "schema": VERSION,
        "plan": "What was compared, as event gain.plan of the recording has it.",
        "measured_on": "GPU or processor, vLLM, torch.",
        "cells": "Those that were measured, and what the oracle made of them before.",
        "copy_speed": "The machine's own, in the engine's process, bytes a second; null where it was not measured.",
        "answers": "One per branch, requests at once and length, and one of all lengths together.",
        "ttft": "Time to first token by prompt length, as the cells were proven.",
        "launches": "What the profiler counted, of requests that were not timed.",
        "overlaps": "What timed loads met that were to overlap the forward.",
        "timelines": "How much of a load hides behind the forward; of a GPU.",
        "exit_code": "Of maru-e2e gain.",
    },
    "ProvenCell": {"id": "As in report.json.", "verdict": "As in report.json.", "ttft": "As it was proven."},
    "ToldAnswer": {
        **_BRANCH,
        "length": "Tokens of the prompts; null for all lengths together.",
        "concurrency": "Requests sent at once.",
        "answer": "faster, slower, within the noise, can't be seen here, or no figure.",
        "why": "Of no figure.",
        "client": "TTFT of b against a, as the client saw it.",
        "noise": "TTFT of a once more against a.",
        "server": "As client, by vLLM's own histogram.",
        "server_noise": "As noise, by vLLM's own histogram.",
        "a_s": "Median TTFT of side a, seconds.",
        "b_s": "Median TTFT of side b, seconds.",
        "left_out": "Samples that were not served as predicted.",
        "look": "After which of the looks it was given.",
        "looks": "How often there may be one.",
        "smallest": f"Smallest saving that it could have told from noise, {_OF_TTFT}.",
        "sought": f"The saving that mattered, {_OF_TTFT}.",
        "share": "What the changed part takes at all; null where nobody knows.",
        "sentence": "The answer in words.",
    },
    "Change": {
        "median": "Relative change: -0.1 is 10 % less.",
        "low": "Lower end of its interval.",
        "high": "Upper end of it.",
        "pairs": "Of how many pairs.",
    },
    "Share": {
        "what": "The part, and who measured it.",
        "seconds": "Of one request.",
        "share": _OF_TTFT.capitalize() + ".",
        "at_copy_speed": "Derived: the same on a connector that loads at copy_speed.",
    },
    "Launches": {
        **_SIDE,
        "device": "cuda, or cpu: there nothing is launched, and ATen operations are counted.",
        "total": "Launches a request.",
        "placement": "Those inside of placements; null where it can't be told.",
        "device_us": "Their time on the GPU, microseconds.",
        "names": "Kernel -> launches a request inside of placements.",
    },
    "Overlap": {
        **_BRANCH,
        "cell": "Whose loads.",
        "loads": "All.",
        "pending": "Those with layers missing when the forward began.",
        "waited": "Those that made it wait.",
    },
    "ToldTimeline": {
        **_SIDE,
        "load_us": "Microseconds in which something was copied to the GPU or placed.",
        "share": "Of it that during which the forward ran, too; null where nothing was loaded.",
        "all_us": "Microseconds from the first of all to the end of the forward.",
        "layers": "The same by layer; empty where layers were not placed one by one.",
    },
    "Hidden": {"layer": "Number, from 0.", "load_us": "As of all layers.", "share": "As of all layers."},
}  # fmt: skip
