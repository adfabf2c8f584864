"""What a night leaves: summary.md, issue.md when something is corrupt, junit.xml, and night.json for later nights."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from urllib.parse import quote

import junitparser

from e2e.base.errors import EXIT_CORRUPT, EXIT_ENGINE, EXIT_INCONCLUSIVE, EXIT_PASS, EXIT_USAGE
from e2e.base.spelling import count
from e2e.report import forms, junit, markdown
from e2e.report.document import Block, Code, Document, Heading, Items, Judged, Lines, Paragraph, Table
from e2e.report.files import judged, put, write
from e2e.report.forms import Report
from e2e.report.junit import xml
from e2e.report.night_inputs import read_junit, read_night, read_nights
from e2e.report.night_page import over_nights
from e2e.report.nightly import INTERRUPTED, SELF_TEST, Change, Night, Step, as_json, compare, gate
from e2e.report.rows import because, share, times, waits
from e2e.report.run_report import side_by_side

_WORDS = {
    EXIT_PASS: "good", EXIT_CORRUPT: "corrupt", EXIT_INCONCLUSIVE: "inconclusive", EXIT_ENGINE: "engine error",
    EXIT_USAGE: "could not run",
}  # fmt: skip

_CURE = "make room for it in the night's folder"


def close_night(folder: Path, *, history: Path | None = None) -> tuple[int, str]:
    """Judges the night in ``folder`` against the good ones beside it (or in ``history``), writes its files, returns the
    exit code of the gate and the summary."""
    folder = folder.resolve()
    night, reports = read_night(folder)
    past = read_nights(history or folder.parent, before=folder.name)
    earlier = [each for each, good in past if good]
    changes = compare(night, earlier)
    code = gate(night, changes)
    shown = summary(night, reports, changes, earlier, code)
    nights = [*(each for each, _ in reversed(past)), night]

    def address(name: str) -> str:
        there = history is None and (folder.parent / name / "summary.html").is_file()
        return f"../{quote(name)}/summary.html" if there else ""

    report = Report(
        lambda: shown, page=lambda: [*shown, *over_nights(nights, address)],
        rows=lambda: [{"cell": cell, **asdict(figures)} for cell, figures in night.cells.items()],
    )  # fmt: skip
    closed = {**as_json(night), "code": code, "good": code == EXIT_PASS}
    with judged(code):
        write(report, folder, "summary", cure=_CURE)
        _put(folder / "night.json", forms.as_json(closed))
        if told := issue(night, reports, changes):
            _put(folder / "issue.md", markdown.render(told))
        _put(folder / "junit.xml", _junit(folder, night, changes))
    return code, markdown.render(shown)


def _put(path: Path, text: str) -> None:
    put(path, text, cure=_CURE)


def word(code: int) -> str:
    return _WORDS.get(code, "the rig failed")


def summary(
    night: Night, reports: Mapping[str, Mapping], changes: Sequence[Change], earlier: Sequence[Night], code: int
) -> Document:
    blocks: list[Block] = [Heading(f"{word(code)}: night {night.name}", level=1)]
    blind = blindness(night)
    if blind:
        blocks.append(Paragraph(blind, strong=True))
    steps = [(step.name, _meaning(night, step), str(step.code), f"{step.seconds:.0f}") for step in night.steps]
    blocks.append(Table(("step", "meaning", "exit code", "seconds"), steps, left=2))
    for step, report in reports.items():
        counts = report["summary"]
        blocks.append(Heading(f"{step}: {counts['pass']} of {counts['cells']} pass"))
        headings = ("cell", "verdict", "hits", "TTFT baseline", "cold", "external", "speed-up", "first slower by")
        rows = [_row(cell) for cell in report["cells"]]
        blocks.append(Table(headings, rows, left=2, optional=("cold", "hits", "external", "TTFT baseline")))
        if why := because(cell["ttft"]["no_speedup"] for cell in report["cells"] if cell["verdict"] == "pass"):
            blocks.append(Paragraph(why))
    if left := _not_tried(reports.values()):
        blocks.append(Paragraph(f"Not tried by any of them: {', '.join(left)}; SCENARIOS names what is played."))
    against = f"the last good night, {earlier[0].name}" if earlier else "no earlier good night"
    blocks.append(Heading(f"Compared with {against}"))
    told = [f"{'worse' if c.worse else 'better'}: {c.kind}: {c.cell}: {c.text}" for c in changes]
    blocks.append(Items(told) if told else Paragraph("No change."))
    if 0 < len(earlier) < 3:
        blocks.append(Paragraph("Times are compared once there are three good nights to tell their noise."))
    return blocks


def _not_tried(reports: Iterable[Mapping]) -> list[str]:
    """Scenarios that no grid of tonight played, as far as their reports tell."""
    said = [[entry["scenario"] for entry in report["not_tried"]] for report in reports if report.get("not_tried")]
    told = [report for report in reports if "not_tried" in report]
    return [name for name in said[0] if all(name in names for names in said)] if len(said) == len(told) > 0 else []


def blindness(night: Night) -> str:
    """Why nothing green would count tonight, or an empty string."""
    tests = [step for step in night.steps if step.kind == SELF_TEST]
    if not tests:
        return "The self-test was not run: nobody knows whether the rig could see anything tonight."
    if tests[0].code != EXIT_PASS:
        return f"The self-test failed (exit code {tests[0].code}): the rig is blind to something, so nothing is green."
    return ""


def _meaning(night: Night, step: Step) -> str:
    if step.kind == SELF_TEST and step.code != EXIT_PASS:
        meaning = "blind" if step.verdict == EXIT_CORRUPT else f"blind: {word(step.verdict)}"
    elif step.code == EXIT_PASS:
        meaning = "passed"
    else:
        meaning = "interrupted" if step.code in INTERRUPTED else word(step.verdict)
    gap = night.gaps.get(step.name)
    if gap:
        meaning += f", but it {gap}" if step.code == EXIT_PASS else f", and it {gap}"
    return meaning if step.gates or step.code == EXIT_PASS else f"{meaning} (no gate)"


def _row(cell: Mapping) -> tuple[str, ...]:
    ttft = cell["ttft"]
    verdict = cell["verdict"] + (f": {cell['reason']}" if cell["reason"] else "")
    hits = "-" if cell["hits"]["engine"] is None else str(cell["hits"]["engine"])
    return (Code(cell["id"]), Judged(verdict), hits, *waits(ttft), times(ttft["speedup"]), share(ttft["store_cost"]))


def issue(night: Night, reports: Mapping[str, Mapping], changes: Sequence[Change]) -> Document:
    """Ready to be pasted: the first line is the title, the same every night, so that what lasts is one issue. Empty
    when nothing is corrupt."""
    wrong = [(step, cell) for step, rep in reports.items() for cell in rep["cells"] if cell["verdict"] == "corrupt"]
    if not wrong:
        return []
    adapters = sorted({cell["adapter"] for _, cell in wrong})
    known = {change.cell: change.text for change in changes if change.kind == "new corruption"}
    blocks: list[Block] = [
        Paragraph(f"KV corruption with {', '.join(adapters)}"),
        Paragraph(f"{count(len(wrong), 'cell')} in the night of {night.name}."),
        Paragraph("Cached reruns did not reproduce what the engine computes without the connector."),
    ]
    for step, cell in wrong:
        blocks += _corrupt(cell, known.get(f"{step}/{cell['id']}", "is corrupt"))
    versions = {
        f"{key} {value}"
        for rep in reports.values()
        for e in rep["engines"]
        for key, value in (e["versions"] or {}).items()
    }
    blocks.append(Paragraph(f"Versions: {', '.join(sorted(versions)) or 'unknown'}"))
    blocks.append(Paragraph(f"Recordings: artifact of night {night.name}."))
    return blocks


def _corrupt(cell: Mapping, since: str) -> Iterator[Block]:
    yield Heading(Code(cell["id"]), level=3)
    yield Paragraph(f"It {since}.")
    claimed = cell["ttft"].get("claimed_speedup")
    if claimed and claimed > 1:
        yield Paragraph(f"Fast but wrong: a speed-up of {claimed:.2f}x would have been claimed.")
    yield Items([finding["sentence"] for finding in cell["findings"]])
    build = cell["effective"].get("connector_build")
    if build:
        yield Paragraph("Connector: " + ", ".join(f"{key} {value}" for key, value in build.items()))
    texts = (cell.get("oracle") or {}).get("texts")
    if texts:
        yield Paragraph("The answers at their first difference:")
        yield side_by_side(texts)
    yield Paragraph("Reproduce:")
    yield Lines(cell["reproduce"])


def _junit(folder: Path, night: Night, changes: Sequence[Change]) -> str:
    """The grids' JUnit files together, and one case per step and per change for the worse."""
    whole = junitparser.JUnitXml()
    for found in read_junit(folder, night):
        whole += found
    suite = junitparser.TestSuite("nightly")
    for step in night.steps:
        case = junitparser.TestCase(xml(step.name), "nightly.steps", step.seconds)
        if step.gates and (step.code != EXIT_PASS or step.name in night.gaps):
            case.result = [junitparser.Failure(f"exit code {step.code}: {_meaning(night, step)}")]
        suite.add_testcase(case)
    for change in changes:
        case = junitparser.TestCase(xml(f"{change.kind}: {change.cell}"), "nightly.changes", 0)
        if change.worse and change.kind != "TTFT":
            case.result = [junitparser.Failure(xml(change.text))]
        elif change.worse:
            case.system_out = xml(change.text)
        suite.add_testcase(case)
    whole.add_testsuite(suite)
    whole.update_statistics()
    return junit.text(whole)
