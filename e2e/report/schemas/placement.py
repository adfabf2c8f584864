"""What regression.json and bench.json of placement hold, and what each field of them is. The processes that write them
have torch and none of this room: see lab/kernels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from msgspec import UNSET, UnsetType

from e2e.report.schemas.closed import VERSION, Closed


class Implementation(Closed):
    name: str
    available: bool
    why: str


class Compared(Closed):
    cases: int
    outcome: Literal["same", "mismatch", "refuses", "fails"]
    bytes: int
    why: str


class Written(Compared):
    """A placement, over all cases of one format and dtype."""

    placement: str
    format: str
    dtype: str


class Control(Compared):
    """Can the comparison see? A view that is wrong for some formats."""

    view: str
    format: str
    expected: Literal["same", "mismatch"]


class Struck(Closed):
    placement: str
    format: str
    slots: str
    mismatches: int


class Defect(Closed):
    """Swapped axes, shown: a kernel that is handed the registered shape instead of the physical view."""

    elements: int
    table: list[Struck]


class Regression(Closed):
    """Byte for byte against the reference."""

    schema: Literal["maru-e2e/placement/1"]
    ok: bool
    device: str
    versions: dict[str, str]
    seed: int
    cases: int
    implementations: list[Implementation]
    grid: list[Written]
    controls: list[Control]
    defect: Defect


class Timed(Closed):
    """One way to place all layers of one request. Figures are there where it is ok, else the reason is."""

    shape: str
    tokens: int
    layout: str
    way: str
    outcome: Literal["ok", "mismatch", "refuses", "fails", "unavailable"]
    why: str | UnsetType = UNSET
    us: float | UnsetType = UNSET
    host_us: float | UnsetType = UNSET
    gpu_us: float | UnsetType = UNSET
    gb_s: float | UnsetType = UNSET
    of_copy: float | UnsetType = UNSET
    launches: int | UnsetType | None = UNSET


class Goal(Closed):
    goal: str
    worst: float | None
    met: bool | None


class Bench(Closed):
    """Against a device copy of the same run."""

    schema: Literal["maru-e2e/placement-bench/1"]
    versions: dict[str, str]
    copy_gb_s: float
    rows: list[Timed]
    goals: list[Goal]


_VERSIONS = "Of Python, torch, the libraries that have kernels, CUDA and the GPU, as far as they are there."
_FORMAT = "Order in which KV lies in the paged cache."
_COMPARED = {
    "cases": "Random cases that were compared.",
    "outcome": "same; mismatch; refuses: says that it can't do this format; fails: any other error.",
    "bytes": "How many are wrong, of all cases.",
    "why": "Of what refuses or fails; else empty.",
}
WORDS: Mapping[str, Mapping[str, str]] = {
    "Regression": {
        "schema": VERSION,
        "ok": "Does nothing differ, and could the comparison see?",
        "device": "cpu or cuda.",
        "versions": _VERSIONS,
        "seed": "Of the random cases.",
        "cases": "How many, for each placement, format and dtype.",
        "implementations": "Placements, and whether they can be had here.",
        "grid": "What each of them wrote.",
        "controls": "What wrong and right views wrote.",
        "defect": "Where swapped axes show.",
    },
    "Implementation": {"name": "Library, and kind of launch.", "available": "Is it here?", "why": "Why not."},
    "Written": {"placement": "Which one.", "format": _FORMAT, "dtype": "Of the cache.", **_COMPARED},
    "Control": {"view": "Which one.", "format": _FORMAT, "expected": "What it has to give.", **_COMPARED},
    "Defect": {"elements": "Of the whole cache.", "table": "By placement, format and choice of slots."},
    "Struck": {
        "placement": "Which one, and the view that it was handed.",
        "format": _FORMAT,
        "slots": "Those that were written.",
        "mismatches": "Elements that differ from the reference's.",
    },
    "Bench": {
        "schema": VERSION,
        "versions": _VERSIONS,
        "copy_gb_s": "A copy within the GPU, bytes read and written.",
        "rows": "By shape, tokens, layout and way.",
        "goals": "What our kernel has to reach.",
    },
    "Timed": {
        "shape": "Layers x KV heads x head size.",
        "tokens": "Of the request.",
        "layout": _FORMAT,
        "way": "Kernel, and how it is called.",
        "outcome": "ok, or why there is no figure.",
        "why": "The same in words.",
        "us": "Median microseconds on an idle GPU, gaps between launches included.",
        "host_us": "Median microseconds that queueing took.",
        "gpu_us": "Median microseconds of the GPU's own time, queued behind other work.",
        "gb_s": "Bytes read and written over us.",
        "of_copy": "The same as a share of copy_gb_s.",
        "launches": "Kernels and copies that the GPU ran, counted at 2048 tokens; null where the profiler can't.",
    },
    "Goal": {"goal": "In words.", "worst": "Over all rows that it speaks of; null of none.", "met": "Null of none."},
}  # fmt: skip
