"""What a person sees at the end of a run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.console import Console

from e2e.base.judgement import Judgement
from e2e.base.verdict import Verdict
from e2e.report.causes import Cause, causes, last_lines
from e2e.report.document import Block, Heading, Items, Lines, Paragraph
from e2e.report.facts import RunFacts
from e2e.report.overhead import sentence as sentence_of_overhead
from e2e.report.paced import TITLE as PACE
from e2e.report.rows import claim, no_speedup, title, untimed
from e2e.report.run_report import cells_table, side_by_side
from e2e.report.terminal import console
from e2e.report.terminal import show as show_blocks

__all__ = ["console", "show"]
COLOURS = {Verdict.PASS: "green", Verdict.CORRUPT: "bold red", Verdict.ERROR: "red", Verdict.INCONCLUSIVE: "yellow"}
#: Sentences per cause and cell; all of them stand in report.md.
SENTENCES = 3


def show(facts: RunFacts, judgement: Judgement, *, on: Console, directory: Path) -> None:
    """Table of cells, causes of what did not pass, what was left out, verdict, where the report lies."""
    shown: list[Block] = [cells_table(judgement.cells, [COLOURS[cell.verdict] for cell in judgement.cells])]
    if why := no_speedup(judgement.cells):
        shown.append(Paragraph(why, style="dim"))
    for cause in causes(judgement, facts):
        shown += _cause(cause)
    if facts.invalid:
        shown.append(Heading(f"{len(facts.invalid)} combinations left out, see report.md", style=""))
    if facts.untold:
        shown.append(Paragraph(f"not tried: {', '.join(facts.untold)}; play them by --scenario", style="dim"))
    if facts.paced:
        shown += [Paragraph(PACE, style="dim"), Items(facts.paced)]
    shown.append(Heading(title(facts, judgement), style=COLOURS[judgement.verdict]))
    if facts.ended:
        shown.append(
            Paragraph(sentence_of_overhead(facts.run["floor"], beside=any(map(untimed, judgement.cells))), style="dim")
        )
    show_blocks([*shown, Paragraph(f"report: {directory / 'report.md'}")], on=on)


def _cause(cause: Cause) -> Iterator[Block]:
    yield Heading(cause.title)
    yield from _some(cause.shared, 0)
    for name, log in cause.logs.items():
        yield Items([f"the log of {name}: {log.path or 'not known'}"])
        if log.tail:
            yield Lines(last_lines(log))
    for cell in cause.cells:
        yield Items([cell.id])
        if claim(cell):
            yield Items([claim(cell)], depth=1)
        if cell.oracle.texts:
            yield side_by_side(cell.oracle.texts)
        if cell.verdict is not Verdict.ERROR:  # what an engine that failed left undone stands in report.md
            yield from _some(cause.own[cell.id], 1)


def _some(texts: Sequence[str], depth: int) -> Iterator[Block]:
    left = len(texts) - SENTENCES
    yield Items([*texts[:SENTENCES], *([f"and {left} more in report.md"] if left > 0 else [])], depth)
