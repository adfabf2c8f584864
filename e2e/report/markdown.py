"""report.md from its template."""

from __future__ import annotations

import shlex

import jinja2

from e2e.base.judgement import Judgement
from e2e.report.facts import RunFacts
from e2e.report.reproduce import reproduce
from e2e.report.rows import HEADINGS, claim, row, verdict_line
from e2e.report.sentences import sentence


def render(facts: RunFacts, judgement: Judgement) -> str:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("e2e.report", "."),
        undefined=jinja2.StrictUndefined,
        autoescape=False,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {"cell_of_table": _cell_of_table, "code": _code}
    return environment.get_template("report.md.j2").render(
        facts=facts,
        judgement=judgement,
        command=_command(facts.run.get("command")),
        line=verdict_line(judgement),
        headings=HEADINGS,
        rows=[row(cell) for cell in judgement.cells],
        wrong=[
            {
                "id": cell.id,
                "claim": claim(cell),
                "sentences": [sentence(finding) for finding in cell.findings],
                "again": reproduce(cell.settings, facts.settings),
            }
            for cell in judgement.cells
            if cell.findings
        ],
        blind=[(cell.id, spot) for cell in judgement.cells for spot in cell.blind],
    )


def _command(words: object) -> str:
    return shlex.join(map(str, words)) if isinstance(words, (list, tuple)) else str(words or "")


def _cell_of_table(text: object) -> str:
    return " ".join(str(text).split()).replace("|", "\\|")


def _code(text: object) -> str:
    return "`" + " ".join(str(text).split()).replace("`", "'") + "`"
