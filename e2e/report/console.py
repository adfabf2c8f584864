"""What a person sees at the end of a run."""

from __future__ import annotations

from pathlib import Path
from typing import TextIO

from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from e2e.base.judgement import Judgement
from e2e.base.verdict import Verdict
from e2e.report.facts import RunFacts
from e2e.report.floor import sentence as sentence_of_floor
from e2e.report.rows import HEADINGS, claim, row, verdict_line
from e2e.report.sentences import sentence

COLOURS = {Verdict.PASS: "green", Verdict.CORRUPT: "bold red", Verdict.ERROR: "red", Verdict.INCONCLUSIVE: "yellow"}
#: Columns of a log or pipe, which has none of its own: wide enough for one line a cell.
LOG_WIDTH = 160
#: Sentences per cell; all of them stand in report.md.
SENTENCES = 3


def console(stream: TextIO) -> Console:
    return Console(file=stream, highlight=False, width=None if stream.isatty() else LOG_WIDTH)


def show(facts: RunFacts, judgement: Judgement, *, on: Console, directory: Path) -> None:
    """Table of cells, sentences for what did not pass, what was left out, verdict, where the report lies."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for number, heading in enumerate(HEADINGS):
        table.add_column(heading, justify="left" if number < 3 else "right", overflow="fold")
    for cell in judgement.cells:
        texts = row(cell).texts
        table.add_row(texts[0], Text(texts[1], style=COLOURS[cell.verdict]), *texts[2:])
    on.print(table)
    for cell in judgement.cells:
        if cell.findings:
            on.print(f"\n[bold]{escape(cell.id)}[/bold]", style=None)
            if claim(cell):
                on.print(f"  {claim(cell)}", style=COLOURS[cell.verdict], markup=False)
            for finding in cell.findings[:SENTENCES]:
                on.print(f"  {sentence(finding)}", markup=False)
            if len(cell.findings) > SENTENCES:
                on.print(f"  and {len(cell.findings) - SENTENCES} more in report.md", style="dim")
    if facts.invalid:
        on.print(f"\n{len(facts.invalid)} combinations left out, see report.md")
    on.print()
    on.print(Text(f"{judgement.verdict.value}: {verdict_line(judgement)}", style=COLOURS[judgement.verdict]))
    on.print(sentence_of_floor(facts.run["floor"]), style="dim")
    on.print(f"report: {directory / 'report.md'}", markup=False, soft_wrap=True)
