"""What is left of a failure after shrinking: the program as a file, what it takes, and the command that replays it."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from e2e.base.judgement import CellJudgement
from e2e.base.program import Program, Send, Start, Step, Together, plainly
from e2e.base.spelling import count
from e2e.report import markdown, terminal
from e2e.report.document import Block, Code, Document, Heading, Items, Lines, Paragraph, Table
from e2e.report.files import put
from e2e.report.sentences import headline, verdict_text

SCHEMA = "maru-e2e/shrunk/1"
PROGRAM, AS_JSON, AS_TEXT = "program.json", "shrunk.json", "shrunk.md"
Settings = Mapping[str, object]


@dataclass(frozen=True)
class Tried:
    """One candidate. ``what``: in what it is smaller. ``fresh``: on engines that had played nothing else. ``failed``:
    as the original did."""

    what: str
    fresh: bool
    judged: CellJudgement
    failed: bool


@dataclass(frozen=True)
class Shrunk:
    """``after``: None where the cell did not fail again. ``untried``: candidates for which the budget was too small.
    ``starts``: of engines. ``command``: replays what is left."""

    cell: CellJudgement
    before: tuple[Settings, Program]
    after: tuple[Settings, Program] | None
    trials: Sequence[Tried]
    untried: int
    starts: int
    seconds: float
    command: str | None


def write_program(program: Program, folder: Path) -> None:
    """The file of ``--program``. UsageError where it can't be written."""
    put(folder / PROGRAM, json.dumps(plainly(program), indent=1) + "\n", cure="make room for it")


def write(found: Shrunk, folder: Path) -> None:
    """shrunk.json and shrunk.md in ``folder``; the latter on the terminal, too. UsageError as above."""
    shown = document(found)
    put(folder / AS_JSON, json.dumps(as_json(found), indent=1) + "\n", cure="make room for it")
    put(folder / AS_TEXT, markdown.render(shown), cure="make room for it")
    terminal.show(shown, on=terminal.console(sys.stdout))


def as_json(found: Shrunk) -> dict[str, object]:
    sides = {"before": found.before, "after": found.after}
    return {
        "schema": SCHEMA, "cell": found.cell.id, "verdict": verdict_text(found.cell),
        **{name: side and {**size(side[1]), "settings": dict(side[0])} for name, side in sides.items()},
        "trials": [
            {"cell": t.judged.id, "what": t.what, "fresh": t.fresh, "verdict": verdict_text(t.judged),
             "failed": t.failed}
            for t in found.trials
        ],
        "untried": found.untried, "starts": found.starts, "seconds": round(found.seconds, 1),
        "program": found.after and plainly(found.after[1]), "command": found.command,
    }  # fmt: skip


def size(program: Program) -> dict[str, int]:
    """How much a program is, in counts and tokens."""
    sends = program.sends
    return {
        "engines": sum(map(program.lent, program.sites)) + sum(isinstance(step, Start) for step in program.flat),
        "steps": sum(1 for _ in program.flat),
        "sends": len(sends),
        "texts": len(program.texts),
        "tokens": sum(text.tokens for text in program.texts),
        "requests": sum(len(send.texts) for send in sends),
        "at_once": max((send.at_once for send in sends), default=0),
    }


def document(found: Shrunk) -> Document:
    return [*_top(found), *_end(found)]


def _top(found: Shrunk) -> Iterator[Block]:
    yield Heading(f"Shrunk: {found.cell.id}, {verdict_text(found.cell)}", level=1)
    yield Paragraph(headline(found.cell))
    if found.after is None:
        yield Paragraph("It did not fail so again, so nothing could be made smaller.", strong=True)
        yield Items([f"{t.judged.id}: {verdict_text(t.judged)}. {headline(t.judged)}" for t in found.trials])
        return
    was, now = size(found.before[1]), size(found.after[1])
    rows = [(name.replace("_", " "), str(was[name]), str(now[name])) for name in was]
    yield Table(("", "before", "now"), [*rows, *_settings(found.before[0], found.after[0])])
    yield Paragraph("What still fails so:")
    yield Items([_said(step) for step in found.after[1].steps])


def _settings(before: Settings, after: Settings) -> Iterator[tuple[str, str, str]]:
    for axis in dict.fromkeys((*before, *after)):
        was, now = str(before.get(axis, "-")), str(after.get(axis, "-"))
        if was != now:
            yield axis, was, now


def _said(step: Step) -> str:
    if isinstance(step, Together):
        return f"at once: {'; '.join(map(_said, step.steps))}"
    if isinstance(step, Send):
        texts = ", ".join(map(str, step.texts))
        at_once = f", {step.at_once} at once" if step.at_once > 1 else ""
        return f"send {step.name} to {step.site}: text {texts}{at_once}"
    words = msgspec.to_builtins(step)
    return " ".join(str(words[name]) for name in words if isinstance(words[name], str))


def _end(found: Shrunk) -> Iterator[Block]:
    took = f"{count(len(found.trials), 'candidate')} on {count(found.starts, 'engine start')} in {found.seconds:.0f} s"
    yield Paragraph(f"{took[0].upper()}{took[1:]}.")
    if found.untried:
        yield Paragraph(
            f"{count(found.untried, 'candidate')} left untried, since the starts or the time were used up; give more, "
            "with --resume."
        )
    if found.command:
        yield Paragraph("Replay just that:")
        yield Lines(found.command)
    if found.trials:
        rows = [
            (t.what, "yes" if t.failed else "no", verdict_text(t.judged), "fresh" if t.fresh else "kept",
             Code(t.judged.id))
            for t in found.trials
        ]  # fmt: skip
        yield Table(("candidate", "fails so", "verdict", "engines", "cell"), rows, left=5, optional=("cell", "engines"))
