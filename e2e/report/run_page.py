"""report.html: what report.md says, and what it rests on: per cell its steps, where two answers part, the KV by layer
and block, settings asked for and seen, and the command that runs it again."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence

from e2e.base.exhibit import COLD, EXTERNAL, LOCAL, RIGHT, UNREAD, WRONG, Bounds, Choice, Chosen, Exhibit, KvMap, Step
from e2e.base.judgement import CellJudgement, Judgement
from e2e.base.speed import by_length
from e2e.base.spelling import count
from e2e.base.verdict import Verdict
from e2e.report import plots
from e2e.report.causes import Cause, causes, last_lines
from e2e.report.document import (
    Code,
    Fold,
    Heading,
    Items,
    Judged,
    KvPicture,
    Lines,
    Link,
    Page,
    PageBlock,
    Paragraph,
    Plot,
    Table,
)  # fmt: skip
from e2e.report.facts import RunFacts
from e2e.report.matrix import matrix
from e2e.report.reproduce import reproduce
from e2e.report.rows import NONE, claim
from e2e.report.run_report import figures, rest, spot, texts, top
from e2e.report.sentences import sentence, verdict_text

#: Steps, requests of a step, and maps of one cell that are shown; those that are wrong come first.
STEPS, REQUESTS, MAPS = 60, 12, 12
#: Cells that have a section, those that did not pass first; and of those the ones that stand open.
CELLS, OPEN = 1000, 3
_TIMED = {(False, COLD): "without connector, cold", (True, COLD): "cold", (True, LOCAL): "local",
          (True, EXTERNAL): "external"}  # fmt: skip


def page(facts: RunFacts, judgement: Judgement) -> Page:
    first = sorted(judgement.cells, key=lambda cell: cell.verdict is Verdict.PASS)[:CELLS]
    anchors = {cell.id: f"#cell-{number}" for number, cell in enumerate(first, 1)}
    return [
        *top(facts, judgement), *_matrix(judgement, anchors), *_wrong(facts, judgement, anchors),
        Heading("Figures"), *figures(judgement), *_plot(facts, judgement),
        *_cells(facts, judgement, anchors), *rest(facts, judgement),
    ]  # fmt: skip


def _matrix(judgement: Judgement, anchors: Mapping[str, str]) -> Iterator[PageBlock]:
    if judgement.cells:
        yield Heading("Cells and verdicts")
        yield matrix(judgement.cells, anchors)


def _wrong(facts: RunFacts, judgement: Judgement, anchors: Mapping[str, str]) -> Iterator[PageBlock]:
    if found := causes(judgement, facts):
        yield Heading(f"What did not pass: {count(len(found), 'cause')}")
    for cause in found:
        yield Heading(f"{cause.title} ({count(len(cause.cells), 'cell')})", level=3)
        yield from _cause(cause, anchors)


def _cause(cause: Cause, anchors: Mapping[str, str]) -> Iterator[PageBlock]:
    yield Items(cause.shared)
    for name, log in cause.logs.items():
        yield Paragraph(f"The log of {name} is {log.path or 'not known'}." + (" Its last lines:" if log.tail else ""))
        if log.tail:
            yield Lines(last_lines(log))
    yield Items([Link(cell.id, anchors.get(cell.id, "")) for cell in cause.cells])


def _plot(facts: RunFacts, judgement: Judgement) -> Iterator[PageBlock]:
    """Of cells that passed; what cells share is one sample."""
    if not facts.exhibits:
        return
    samples: dict[str, dict[str, tuple[int, float]]] = {name: {} for name in _TIMED.values()}
    for cell in judgement.cells:
        exhibit = facts.exhibits.get((cell.id, cell.attempt))
        if cell.verdict is Verdict.PASS and exhibit:
            for step in exhibit.steps:
                name = _TIMED.get((step.connector, step.source))
                if name and step.alone:
                    samples[name] |= {a.request: (a.tokens, a.ttft_s) for a in step.asked if a.ttft_s is not None}
    points = {name: list(found.values()) for name, found in samples.items() if found}
    if not points:
        return
    noise = _noise(judgement)
    if svg := plots.by_length(points, noise):
        told = ", ".join(f"{len(found)} {name}" for name, found in points.items())
        said = f"TTFT by prompt length, one point a request of the cells that passed, bars are medians: {told}."
        yield Plot(svg, f"{said} Grey is the noise of external ones." if noise else said)
    else:
        yield Paragraph(plots.MISSING)


def _noise(judgement: Judgement) -> dict[int, tuple[float, float]]:
    """Tokens -> where the same external rerun came out once more, as far as its median is known."""
    return {
        each.tokens: (each.external_s * (1 + each.noise.low), each.external_s * (1 + each.noise.high))
        for each in by_length(judgement) if each.external_s and each.noise and each.noise.low is not None
    }  # fmt: skip


def _cells(facts: RunFacts, judgement: Judgement, anchors: Mapping[str, str]) -> Iterator[PageBlock]:
    if not judgement.cells:
        return
    yield Heading("Each cell")
    if not facts.exhibits:
        yield Paragraph("What each verdict rests on is written once the run has ended, or by maru-e2e judge.")
    if (left := len(judgement.cells) - len(anchors)) > 0:
        yield Paragraph(f"{count(left, 'cell')} have no section of their own; report.json has all of them.")
    opened = 0
    for cell in (cell for cell in judgement.cells if cell.id in anchors):
        passed = cell.verdict is Verdict.PASS
        opened += not passed
        yield Fold(
            cell.id, [*_cell(cell, facts)], Judged(verdict_text(cell)), anchors[cell.id].removeprefix("#"),
            open=not passed and opened <= OPEN, spare=1 + passed,
        )  # fmt: skip


def _cell(cell: CellJudgement, facts: RunFacts) -> Iterator[PageBlock]:
    exhibit = facts.exhibits.get((cell.id, cell.attempt), Exhibit())
    if claim(cell):
        yield Paragraph(f"{claim(cell)[0].upper()}{claim(cell)[1:]}.", strong=True)
    if cell.findings:
        yield Items([sentence(finding) for finding in cell.findings])
    yield from _parting(cell, exhibit)
    yield from _maps(exhibit.maps)
    yield from _steps(exhibit.steps)
    yield from _settings(cell, exhibit)
    if cell.blind:
        yield Heading("What it can't see", level=3)
        yield Items([spot(each) for each in cell.blind])
    yield Heading("Again", level=3)
    yield Lines(reproduce(cell.settings, facts.run))


def _parting(cell: CellJudgement, exhibit: Exhibit) -> Iterator[PageBlock]:
    yield from texts(cell)
    if (parting := exhibit.parting) is None:
        return
    yield Heading(f"Where the answers to prompt {parting.prompt} part: output position {parting.position}", level=3)
    rows = [
        (("> " if at == parting.position else "") + str(at), *_side(expected), *_side(found))
        for at, expected, found in parting.rows
    ]
    sides = (
        f"{parting.expected} (expected)",
        "logprob",
        "likeliest",
        f"{parting.found} (found)",
        "logprob",
        "likeliest",
    )
    yield Table(("at", *sides), rows, left=len(sides) + 1)


def _side(chosen: Chosen | None) -> tuple[str, str, str]:
    if chosen is None:
        return "(ended)", NONE, NONE
    top = "\n".join(map(_choice, chosen.top)) or NONE
    return Code(_token(str(chosen.token), chosen.text)), _logprob(chosen.logprob), Code(top)


def _choice(choice: Choice) -> str:
    return f"{_token(choice.token, choice.text)} {_logprob(choice.logprob)}"


def _token(token: str, text: str | None) -> str:
    return token if text is None else f"{json.dumps(text, ensure_ascii=False)} ({token})"


def _logprob(value: float | None) -> str:
    return NONE if value is None else f"{value:.6g}"


def _maps(maps: Sequence[KvMap]) -> Iterator[PageBlock]:
    if not maps:
        return
    yield Heading("KV by layer (down) and block (across): green is right, red wrong, grey not read", level=3)
    shown = sorted(maps, key=lambda each: not each.wrong)[:MAPS]
    yield from (KvPicture(each.layers, _told(each)) for each in shown)
    if rest_of := len(maps) - len(shown):
        wrong = sum(each.wrong for each in maps) - sum(each.wrong for each in shown)
        yield Paragraph(f"{count(rest_of, 'more map')}, {wrong} of them with wrong KV, are not drawn.")


def _told(each: KvMap) -> str:
    signs = "".join(each.layers)
    counts = [(signs.count(RIGHT), "right"), (signs.count(WRONG), "wrong"), (signs.count(UNREAD), "not read")]
    which = [f"{each.site} {each.send}, prompt {each.prompt}"]
    which += [f"rank {each.rank}"] if each.rank else []
    which += [f"read {each.read}"] if each.read > 1 else []
    blocks = len(each.layers[0]) if each.layers else 0
    said = ", ".join(f"{number} {word}" for number, word in counts if number)
    size = f"{count(len(each.layers), 'layer')}, {count(blocks, 'block')} of {each.block_size} tokens"
    return f"{', '.join(which)}, against {each.reference}: {said or 'nothing'} ({size})"


def _steps(steps: Sequence[Step]) -> Iterator[PageBlock]:
    if not steps:
        return
    yield Heading("Steps: tokens predicted and seen", level=3)
    headings = (
        "engine", "sends", "tokens of its prompts", "local predicted", "seen", "external predicted", "vLLM",
        "connector", "TTFT, s",
    )  # fmt: skip
    yield Table(headings, [_step(step) for step in steps[:STEPS]], left=2)
    if len(steps) > STEPS:
        yield Paragraph(f"and {count(len(steps) - STEPS, 'more step')}.")


def _step(step: Step) -> tuple[str, ...]:
    seen = (step.local, step.seen_local, step.external, step.seen_external, step.seen_connector)
    return (
        step.site, step.send, _several([str(asked.tokens) for asked in step.asked]), *map(_tokens, seen),
        _several([NONE if asked.ttft_s is None else f"{asked.ttft_s:.3f}" for asked in step.asked]),
    )  # fmt: skip


def _several(values: Sequence[str]) -> str:
    more = len(values) - REQUESTS
    return ", ".join(values[:REQUESTS]) + (f" and {more} more" if more > 0 else "") or NONE


def _tokens(value: Bounds | int | None) -> str:
    if isinstance(value, Bounds):
        return str(value.most) if value.least == value.most else f"{value.least} to {value.most}"
    return NONE if value is None else str(value)


def _settings(cell: CellJudgement, exhibit: Exhibit) -> Iterator[PageBlock]:
    """All that was asked for, and what the worker and the loads say of it."""
    asked = {**cell.settings, **exhibit.asked}
    if not asked:
        return
    yield Heading("Settings asked for and seen", level=3)
    rows = [(axis, str(value), str(cell.effective.get(axis, NONE))) for axis, value in asked.items()]
    yield Table(("", "asked for", "seen"), rows, left=3)
    others = {name: value for name, value in cell.effective.items() if name not in asked}
    if others:
        yield Fold("what else the engine said of itself", [Table(("", ""), [(k, str(v)) for k, v in others.items()])])
