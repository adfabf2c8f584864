"""report.md: what was run, what came out, and why, for a reader who has nothing else."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence

from e2e.base.judgement import CellJudgement, Judgement
from e2e.base.speed import FEWEST, LengthSpeed, by_length
from e2e.base.spelling import count
from e2e.report.causes import Cause, causes, last_lines
from e2e.report.document import Block, Code, Document, Heading, Items, Judged, Lines, Paragraph, Table
from e2e.report.facts import RunFacts
from e2e.report.identity import identity
from e2e.report.paced import TITLE as PACE
from e2e.report.reproduce import reproduce
from e2e.report.rows import HEADINGS, OPTIONAL, claim, figure, no_speedup, row, share, title
from e2e.report.rows import times as factor
from e2e.scenarios.packs import provokes

WHAT_FIGURES_ARE = (
    "Seconds as the client saw them, medians over the cells that passed, in brackets 95 % intervals of the medians "
    f"(bootstrap; of {FEWEST} values or more). Noise is how much longer the same rerun took once more: no smaller "
    "difference says anything."
)


def document(facts: RunFacts, judgement: Judgement) -> Document:
    return [*top(facts, judgement), *figures(judgement), *_wrong(facts, judgement), *rest(facts, judgement)]


def top(facts: RunFacts, judgement: Judgement) -> Iterator[Block]:
    yield Heading(title(facts, judgement), level=1)
    yield Table(
        ("", ""), [(name, Code(text) if name == "command" else text) for name, text in identity(facts, judgement)]
    )


def figures(judgement: Judgement) -> Iterator[Block]:
    yield cells_table(judgement.cells)
    yield Paragraph(_what_hits_are(judgement.cells))
    if why := no_speedup(judgement.cells):
        yield Paragraph(why)
    if lengths := by_length(judgement):
        yield Heading("TTFT per prompt length")
        yield ttft_table(lengths)
        yield Paragraph(WHAT_FIGURES_ARE)


def cells_table(cells: Sequence[CellJudgement], styles: Sequence[str] = ()) -> Table:
    rows = [(Code(cell_id), Judged(verdict), *others) for cell_id, verdict, *others in map(row, cells)]
    return Table(HEADINGS, rows, left=3, optional=OPTIONAL, styles=styles)


def _what_hits_are(cells: Sequence[CellJudgement]) -> str:
    own = any(cell.counters for cell in cells)
    by = "counted by vLLM, counted by the connector" if own else "counted by vLLM (the connector has no counters)"
    return (
        f"Hits are external tokens over all external arms: predicted, {by}; one number where all agree. "
        "TTFT is the client's, summed over the prompts: cold on an engine without a connector (baseline), cold with "
        "the connector, which stores on the way, and from the connector (external). A speed-up is baseline over "
        "external, given for cells that passed only; what storing costs the first request is cold over baseline."
    )


def ttft_table(lengths: Sequence[LengthSpeed]) -> Table:
    headings = ("tokens", "baseline", "cold", "local", "external", "speed-up", "first slower by", "noise", "cells")
    rows = []
    for each in lengths:
        medians = (each.baseline_cold_s, each.cold_s, each.local_s, each.external_s)
        times = ("-" if value is None else f"{value:.3f} s" for value in medians)
        figures = (figure(each.speedup, factor), figure(each.store_cost, share), figure(each.noise, share))
        rows.append((str(each.tokens), *times, *figures, str(each.cells)))
    return Table(headings, rows, left=0)


def _wrong(facts: RunFacts, judgement: Judgement) -> Iterator[Block]:
    found = causes(judgement, facts)
    if found:
        struck = sum(len(cause.cells) for cause in found)
        findings = sum(len(cell.findings) for cell in judgement.cells)
        yield Heading(f"What did not pass: {count(len(found), 'cause')}, {count(struck, 'cell')}, "
                      f"{count(findings, 'finding')}")  # fmt: skip
    for cause in found:
        yield Heading(f"{cause.title} ({count(len(cause.cells), 'cell')})", level=3)
        yield from _cause(cause, facts)


def _cause(cause: Cause, facts: RunFacts) -> Iterator[Block]:
    if cause.shared:
        yield Items(cause.shared)
    for name, log in cause.logs.items():
        yield Paragraph(f"The log of {name} is {log.path or 'not known'}." + (" Its last lines:" if log.tail else ""))
        if log.tail:
            yield Lines(last_lines(log))
    for cell in cause.cells:
        yield Heading(Code(cell.id), level=4)
        if claim(cell):
            yield Paragraph(f"{claim(cell)[0].upper()}{claim(cell)[1:]}.", strong=True)
        if cause.own[cell.id]:
            yield Items(cause.own[cell.id])
        yield from texts(cell)
        yield Paragraph("Again:")
        yield Lines(reproduce(cell.settings, facts.run))


def texts(cell: CellJudgement) -> Iterator[Block]:
    """Both answers at their first difference, decoded."""
    difference, read = cell.oracle.first_difference, cell.oracle.texts
    if difference is None or read is None:
        return
    yield Paragraph(
        f"The answer to prompt {difference['prompt']} in arm {difference['arm']} beside that of "
        f"{difference['reference']}, from output position {difference['position']} on:"
    )
    yield side_by_side(read)


def side_by_side(read: Mapping[str, str]) -> Lines:
    """``Oracle.texts``, each in quotes on a line of its own."""
    same = read["expected"] == read["found"]
    parts = [("both began", read["before"])] if read["before"] else []
    parts += [("both went on", read["found"])] if same else [("expected", read["expected"]), ("found", read["found"])]
    width = max(len(name) for name, _ in parts)
    return Lines("\n".join(f"{name:<{width}}  {json.dumps(text, ensure_ascii=False)}" for name, text in parts))


def rest(facts: RunFacts, judgement: Judgement) -> Iterator[Block]:
    blind = [f"{cell.id}: {spot(each)}" for cell in judgement.cells for each in cell.blind]
    if blind:
        yield Heading("What these cells can't see")
        yield Items(blind)
    if facts.untold:
        yield Heading("Not tried")
        yield Paragraph(
            "Scenarios that this run did not play; --scenario NAME plays one, --scenario all plays them all."
        )
        yield Items([f"{name}: {provokes(name)}".removesuffix(": ") for name in facts.untold])
    if facts.served:
        yield Heading("What was served where it might not be")
        yield Items(facts.served)
    if facts.paced:
        yield Heading(PACE)
        yield Items(facts.paced)
    if facts.invalid:
        yield Heading("Left out")
        yield Items([f"{_axes(entry['settings'])}: {entry['why']}" for entry in facts.invalid])
    if facts.engines:
        yield Heading("Engines")
        headings = ("key", "role", "versions", "starts", "start s", "failures")
        yield Table(headings, [_engine(engine) for engine in facts.engines], left=3)
    if facts.notes:
        yield Heading("Notes")
        yield Items(facts.notes)


def _engine(engine: Mapping[str, object]) -> tuple[str, ...]:
    versions = ", ".join(f"{name} {version}" for name, version in engine["versions"].items())
    key, role, *figures = (str(engine[name]) for name in ("key", "role", "starts", "start_s", "failures"))
    return key, role, versions, *figures


def spot(blind: Mapping[str, object]) -> str:
    """What a cell can't see, and why."""
    return f"{blind.get('fault_class', 'a fault')}: {blind.get('why', '')}"


def _axes(settings: object) -> str:
    pairs = settings.items() if isinstance(settings, Mapping) else ()
    return " ".join(f"{axis}={value}" for axis, value in pairs)
