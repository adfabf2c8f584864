"""Cells that failed for one cause, together: what caused it first, then the cells that it struck."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from e2e.base.judgement import CellJudgement, Judgement
from e2e.report.facts import EngineLog, RunFacts
from e2e.report.sentences import detail, meaning, pattern, sentence

#: What tells causes of one reason apart. Where, when and how much differ from cell to cell.
_APART = ("cause", "error", "axis", "baseline", "source", "what", "rule")
_PARTICULAR = re.compile(r"\S*\d\S*")
#: Lines of an engine's log that a report shows; the whole log lies beside it.
LOG_LINES = 15


@dataclass(frozen=True)
class Cause:
    """``shared``: sentences that are true of every cell, ``own``: cell id -> those that are not. ``logs``: engine
    start -> its log, of the engines that failed."""

    title: str
    cells: tuple[CellJudgement, ...]
    shared: tuple[str, ...]
    own: dict[str, tuple[str, ...]]
    logs: dict[str, EngineLog]


def causes(judgement: Judgement, facts: RunFacts) -> list[Cause]:
    """Worst verdict first, then in the order in which they struck."""
    groups: dict[tuple[object, ...], list[CellJudgement]] = {}
    for cell in judgement.cells:
        if cell.findings:
            groups.setdefault(_key(cell), []).append(cell)
    ordered = sorted(groups.values(), key=lambda cells: -cells[0].verdict.weight)
    return [_cause(cells, facts) for cells in ordered]


def _key(cell: CellJudgement) -> tuple[object, ...]:
    lead = cell.findings[0]
    return (lead.reason, *(_general(lead.evidence.get(name)) for name in _APART), _pattern(cell))


def _general(text: object) -> str:
    """Without what is another one each time: names of requests and engine starts, addresses, limits."""
    return " ".join(_PARTICULAR.sub("...", str(text)).split()).rstrip(".")


def _pattern(cell: CellJudgement) -> str:
    return next((pattern(finding.evidence) for finding in cell.findings if finding.evidence.get("pattern")), "")


def _cause(cells: Sequence[CellJudgement], facts: RunFacts) -> Cause:
    told = {cell.id: _told(cell) for cell in cells}
    shared = tuple(text for text in told[cells[0].id] if all(text in texts for texts in told.values()))
    own = {cell: tuple(text for text in texts if text not in shared) for cell, texts in told.items()}
    logs = {name: log for cell in cells for name, log in engine_logs(cell, facts).items()}
    return Cause(_title(cells), tuple(cells), shared, own, logs)


def _told(cell: CellJudgement) -> tuple[str, ...]:
    """A sentence per finding, without what the cause's title says already."""
    lead = cell.findings[0].reason
    texts = [detail(finding) if finding.reason is lead else sentence(finding) for finding in cell.findings]
    return tuple(dict.fromkeys(filter(None, texts)))


def _title(cells: Sequence[CellJudgement]) -> str:
    """What the reason means, and what is known of why."""
    said = {
        " ".join(str(cell.findings[0].evidence.get("cause") or _pattern(cell)).split()).rstrip(".") for cell in cells
    }
    why = said.pop() if len(said) == 1 else _general(min(said))
    reason = meaning(cells[0].findings[0].reason)
    return f"{reason}: {why}" if why else reason


def engine_logs(cell: CellJudgement, facts: RunFacts) -> dict[str, EngineLog]:
    """Of the engine starts that failed this cell, as its findings name them."""
    names = [str(finding.evidence.get("engine")) for finding in cell.findings if finding.rule == "failed"]
    return {name: facts.logs[name] for name in names if name in facts.logs}


def last_lines(log: EngineLog) -> str:
    return "\n".join(log.tail.strip("\n").split("\n")[-LOG_LINES:])
