"""Can the rig see it? Planted faults against the checks that caught them, and false alarms of the clean twins."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console

from e2e.base.errors import EXIT_CORRUPT, EXIT_ENGINE, EXIT_INCONCLUSIVE, EXIT_PASS
from e2e.base.fault import parted
from e2e.base.judgement import CellJudgement, Judgement
from e2e.base.spelling import count
from e2e.base.verdict import Reason, Verdict
from e2e.faults.catalogue import FAULTS, find
from e2e.report import markdown, terminal
from e2e.report.document import Document, Heading, Items, Paragraph, Table
from e2e.report.files import put
from e2e.report.report_json import plain

#: Which check a finding speaks for. The exact oracle is the first two, without any digest.
CHECKS: Mapping[str, tuple[Reason, ...]] = {
    "tokens": (Reason.TOKENS_DIFFER, Reason.BEYOND_NOISE),
    "logprobs": (Reason.LOGPROBS_DIFFER,),
    "first answer": (Reason.FIRST_ANSWER_DIFFERS,),
    "digests": (Reason.DIGEST_DIFFERS,),
    "hits": (Reason.NO_HIT, Reason.PARTIAL_HIT, Reason.SOURCES_DISAGREE, Reason.LOAD_FAILED),
}
CAUGHT, MISSED, UNDECIDED = "caught", "missed", "undecided"


@dataclass(frozen=True)
class FaultRow:
    """One fault in one cell. ``outcome``: caught (corrupt with it, and the clean twin passed), missed, or undecided
    (it did not fire, or the twin did not pass), with ``why``. ``located``: was the pattern named right; None without
    digests. ``pattern``, ``where``: of the first finding of the digests."""

    fault: str
    cell: str
    outcome: str
    why: str
    checks: tuple[str, ...]
    located: bool | None
    pattern: str | None
    where: str | None
    claimed_speedup: float | None


@dataclass(frozen=True)
class Scoreboard:
    """``replays``: external answers of clean cells, each compared as a whole; ``alarms``: those of cells that were
    corrupt. ``clean_left``: clean cells that are neither pass nor corrupt. ``errors``: cells whose engine failed."""

    rows: tuple[FaultRow, ...]
    clean_cells: int
    clean_left: int
    replays: int
    alarms: int
    errors: int = 0

    @property
    def exit_code(self) -> int:
        """What was not decided, for want of a run to its end or of a healthy twin, was not missed either."""
        outcomes = {row.outcome for row in self.rows}
        if self.alarms or MISSED in outcomes:
            return EXIT_CORRUPT
        if outcomes <= {CAUGHT}:
            return EXIT_PASS
        return EXIT_ENGINE if self.errors else EXIT_INCONCLUSIVE


def scoreboard(judgement: Judgement) -> Scoreboard:
    clean = [cell for cell in judgement.cells if cell.fault is None]
    passed: dict[tuple, bool] = {}
    for cell in clean:
        key = _twin_key(cell)
        passed[key] = passed.get(key, True) and cell.verdict is Verdict.PASS
    rows = [_row(cell, passed.get(_twin_key(cell), False)) for cell in judgement.cells if cell.fault is not None]
    per_cell = {cell.id: cell.replays for cell in clean}
    return Scoreboard(
        rows=tuple(rows),
        clean_cells=len(clean),
        clean_left=sum(cell.verdict not in (Verdict.PASS, Verdict.CORRUPT) for cell in clean),
        replays=sum(per_cell[cell.id] for cell in clean if cell.verdict in (Verdict.PASS, Verdict.CORRUPT)),
        alarms=sum(per_cell[cell.id] for cell in clean if cell.verdict is Verdict.CORRUPT),
        errors=sum(cell.verdict is Verdict.ERROR for cell in judgement.cells),
    )


def _twin_key(cell: CellJudgement) -> tuple:
    return tuple(sorted((k, str(v)) for k, v in cell.settings.items() if k not in ("fault", "round")))


def _row(cell: CellJudgement, twin_passed: bool) -> FaultRow:
    reasons = {finding.reason for finding in cell.findings}
    digests = [finding.evidence for finding in cell.findings if finding.reason is Reason.DIGEST_DIFFERS]
    if not digests:  # a spoilt cold run is located by the digests too, under its own reason
        digests = [f.evidence for f in cell.findings if f.rule == "digests" and "pattern" in f.evidence]
    pattern = str(digests[0].get("pattern")) if digests else None
    outcome, why = UNDECIDED, ""
    if Reason.FAULT_NOT_FIRED in reasons:
        why = "the fault did not fire"
    elif not twin_passed:
        why = "the clean twin did not pass"
    elif cell.verdict is Verdict.CORRUPT:
        outcome = CAUGHT
    elif cell.verdict is Verdict.ERROR:
        why = cell.reason.sentence if cell.reason else "error"
    else:
        outcome, why = MISSED, cell.reason.sentence if cell.reason else "it passed"
    place = digests[0] if digests else {}
    where = (
        f"layer {place['layer']} {place['kv']} head {place['head']} block {place['block']}" if "kv" in place else None
    )
    if where and "wrong_ranks" in place:
        where += f" rank {', '.join(map(str, place['wrong_ranks']))}"
    return FaultRow(
        fault=str(cell.fault),
        cell=cell.id.split("-fault_")[0],
        outcome=outcome,
        why=why,
        checks=tuple(name for name, of in CHECKS.items() if reasons & set(of)),
        located=None if pattern is None else _located(str(cell.fault), pattern, place),
        pattern=pattern,
        where=where,
        claimed_speedup=cell.ttft.claimed_speedup,
    )


def _located(fault: str, pattern: str, place: Mapping[str, object]) -> bool:
    """Is it named for what it is, and on the one rank that it struck?"""
    rank = parted(fault)[1]
    return pattern in find(fault).patterns and (rank is None or place.get("wrong_ranks") == [rank])


def show(judgement: Judgement, *, on: Console, directory: Path, ended: bool = True) -> int:
    """Prints the scoreboard, writes scoreboard.json and scoreboard.md, returns the exit code. ``ended``: did the run
    come to its end?"""
    board = scoreboard(judgement)
    undone = [f"{row.outcome}: {row.fault} in {row.cell}: {row.why}" for row in board.rows if row.outcome != CAUGHT]
    end = [Paragraph(false_alarms(board)), Paragraph(_title(board, ended), strong=True)]
    terminal.show([_summary(board), Items(undone), *end], on=on)
    put(directory / "scoreboard.json", json.dumps(plain(asdict(board)), indent=1) + "\n")
    put(directory / "scoreboard.md", markdown.render(document(board, ended=ended)))
    paths = [f"scoreboard: {directory / 'scoreboard.md'}", f"each cell: {directory / 'report.md'}"]
    terminal.show([Paragraph(path) for path in paths], on=on)
    return board.exit_code


HEADINGS = ("fault", "caught", "tokens", "logprobs", "first answer", "digests", "hits", "located", "claimed speed-up")


def summary(board: Scoreboard) -> list[tuple[str, ...]]:
    """One line a fault, over the cells where it can act: in how many it was caught, and by which check."""
    found = []
    for fault in dict.fromkeys(row.fault for row in board.rows):
        rows = [row for row in board.rows if row.fault == fault]
        counts = [str(sum(name in row.checks for row in rows)) for name in CHECKS]
        seen = [row for row in rows if row.located is not None]
        located = f"{sum(bool(row.located) for row in seen)} of {len(seen)}" if seen else "-"
        claimed = max((row.claimed_speedup for row in rows if row.claimed_speedup), default=None)
        caught = f"{sum(row.outcome == CAUGHT for row in rows)} of {len(rows)}"
        found.append((fault, caught, *counts, located, f"{claimed:.1f}x" if claimed else "-"))
    return found


def false_alarms(board: Scoreboard) -> str:
    """With the bound that n trials allow: 0 of n leaves a rate below about 3 / n (95 %)."""
    text = f"false alarms: {board.alarms} of {board.replays} clean replays in {count(board.clean_cells, 'cell')}"
    if board.alarms == 0 and board.replays:
        text += f", so the true rate is below about {3 / board.replays:.2%}"
    return text + (f"; {board.clean_left} clean cells could not be judged" if board.clean_left else "")


def verdict_line(board: Scoreboard) -> str:
    counts = {outcome: sum(row.outcome == outcome for row in board.rows) for outcome in (CAUGHT, MISSED, UNDECIDED)}
    rest = ", ".join(f"{count} {outcome}" for outcome, count in counts.items() if count and outcome != CAUGHT)
    return f"{counts[CAUGHT]} of {len(board.rows)} planted faults caught" + (f", {rest}" if rest else "")


def _title(board: Scoreboard, ended: bool) -> str:
    return verdict_line(board) if ended else f"did not end: {verdict_line(board)}"


def document(board: Scoreboard, *, ended: bool = True) -> Document:
    headings = ("fault", "cell", "outcome", "seen by", "pattern", "first wrong place")
    rows = [
        (
            row.fault, row.cell, row.outcome + (f": {row.why}" if row.why else ""), ", ".join(row.checks) or "-",
            (row.pattern or "-") + (" (wrong)" if row.located is False else ""), row.where or "-",
        )
        for row in board.rows
    ]  # fmt: skip
    planted = [FAULTS[name] for name in dict.fromkeys(parted(row.fault)[0] for row in board.rows) if name in FAULTS]
    meant = [(fault.name, fault.what, fault.stands_for) for fault in planted]
    return [
        Heading(_title(board, ended), level=1), _summary(board), Paragraph(false_alarms(board)),
        Heading("What was planted"), Table(("fault", "what it does", "what it stands for"), meant, left=3),
        Heading("What was seen"), Table(headings, rows, left=6),
    ]  # fmt: skip


def _summary(board: Scoreboard) -> Table:
    return Table(HEADINGS, summary(board), optional=("hits", "first answer", "claimed speed-up", "tokens", "logprobs"))
