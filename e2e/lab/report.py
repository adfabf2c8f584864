"""placement.*: do the placement kernels write what the reference writes, and how fast? From what the processes with
torch left as JSON, see kernels/regression.py and kernels/bench.py."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from e2e.report import plots, terminal
from e2e.report.document import Block, Document, Heading, Items, Judged, Page, PageBlock, Paragraph, Plot, Table
from e2e.report.files import write as write_forms
from e2e.report.forms import Report

Result = Mapping[str, object]
#: Worst first: what a placement did with a format is what it did with the worst of the dtypes.
_ORDER = ("fails", "mismatch", "refuses", "same")


def write(regression: Result, bench: Result | None, *, directory: Path) -> None:
    """placement.* in ``directory``, and on the terminal. UsageError when it can't be written."""
    shown = document(regression, bench)
    report = Report(lambda: shown, page=lambda: page(shown, bench), rows=lambda: rows(regression, bench))
    write_forms(report, directory, "placement")
    terminal.show(shown, on=terminal.console(sys.stdout))
    terminal.show([Paragraph(f"report: {directory / 'placement.md'}")], on=terminal.console(sys.stdout))


def document(regression: Result, bench: Result | None) -> Document:
    verdict = "all as the reference" if regression["ok"] else "MISMATCH"
    versions = ", ".join(f"{name} {version}" for name, version in regression["versions"].items() if version)
    return [
        Heading(f"Placement: {verdict}", level=1),
        Paragraph(f"{regression['device']}, {versions}."),
        *_regression(regression),
        *(benchmark(bench) if bench else _not_timed()),
    ]


def page(shown: Document, bench: Result | None) -> Page:
    """``shown``: the document. The plot stands under the heading of what it draws."""
    at = next((n for n, block in enumerate(shown) if isinstance(block, Heading) and block.level > 1), len(shown) - 1)
    return [*shown[: at + 1], *_plot(bench["rows"] if bench else ()), *shown[at + 1 :]]


def _plot(found: Sequence[Mapping]) -> Iterator[PageBlock]:
    measured = [row for row in found if row["outcome"] == "ok"]
    if not measured:
        return
    drawn = []
    for shape, tokens in dict.fromkeys((row["shape"], row["tokens"]) for row in measured):
        mine = [row for row in measured if (row["shape"], row["tokens"]) == (shape, tokens)]
        times = {row["way"]: [each["us"] for each in mine if each["way"] == row["way"]] for row in mine}
        copies = {round(row["us"] * row["of_copy"], 1) for row in mine}
        drawn.append((f"{shape}, {tokens} tokens", times, sorted(copies)))
    if svg := plots.placements(drawn, rows=2 * len(drawn)):
        rows_are = "rows are layers x KV heads x head size"
        yield Plot(svg, f"Time to place all layers of one request, a point for each of the layouts; {rows_are}.")
    else:
        yield Paragraph(plots.MISSING)


def rows(regression: Result, bench: Result | None) -> list[Result]:
    """What each kernel wrote, and how long it took."""
    return [*regression["grid"], *(bench["rows"] if bench else [])]


def _not_timed() -> list[Block]:
    return [Paragraph("Not run, for want of a CUDA GPU: the benchmark, and the kernels that only a GPU has.")]


def _regression(found: Result) -> Iterator[Block]:
    forms = list(dict.fromkeys(row["format"] for row in found["grid"]))
    there = [entry["name"] for entry in found["implementations"] if entry["available"]]
    rows = [(form, *(Judged(_worst(found["grid"], name, form)) for name in there)) for form in forms]
    yield Table(("format", *there), rows, left=1 + len(there))
    yield Items([f"{e['name']} unavailable: {e['why']}" for e in found["implementations"] if not e["available"]])
    told = sum(row["outcome"] == row["expected"] for row in found["controls"])
    yield Paragraph(f"Controls: {told} of {len(found['controls'])} wrong or right views told apart.")
    yield Paragraph(f"Registered shape instead of physical view, wrong elements of {found['defect']['elements']}:")
    rows = [
        tuple(str(row[name]) for name in ("placement", "format", "slots", "mismatches"))
        for row in found["defect"]["table"]
        if row["mismatches"] or row["slots"] == "0 to 15"
    ]
    yield Table(("placement", "format", "slots", "wrong"), rows, left=3)


def _worst(grid: Sequence[Mapping], name: str, form: str) -> str:
    seen = [row["outcome"] for row in grid if (row["placement"], row["format"]) == (name, form)]
    return min(seen, key=_ORDER.index, default="-")


def benchmark(found: Result) -> Iterator[Block]:
    yield Heading(f"Speed: {found['copy_gb_s']:,.0f} GB/s copied on {found['versions'].get('gpu')}")
    yield Paragraph("Microseconds for all layers of one request, and the share of the copy's speed:")
    there = [row for row in found["rows"] if row["outcome"] != "unavailable"]
    ways = list(dict.fromkeys(row["way"] for row in there))
    times = {(row["shape"], row["tokens"], row["layout"], row["way"]): _time(row) for row in found["rows"]}
    keys = dict.fromkeys(key[:3] for key in times)
    rows = [(*map(str, key), *(times.get((*key, way), "-") for way in ways)) for key in keys]
    yield Table(("shape", "tokens", "layout", *ways), rows)
    lost = {row["way"]: row["why"] for row in found["rows"] if row["outcome"] == "unavailable"}
    yield Items([f"{way}: {why}" for way, why in lost.items()])
    yield Items([_goal(goal) for goal in found["goals"]])


def _time(row: Mapping) -> str:
    return f"{row['us']:,.0f} ({row['of_copy']:.0%})" if row["outcome"] == "ok" else row["outcome"]


def _goal(goal: Mapping) -> str:
    said = {True: "met", False: "NOT met", None: "not measured"}[goal["met"]]
    worst = f" (worst {goal['worst']:.2f})" if goal["worst"] is not None else ""
    return f"{goal['goal']}: {said}{worst}"
