"""Can the rig see it? Planted faults against the checks that caught them, and false alarms of the clean twins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

from rich.console import Console

from e2e.base.errors import EXIT_CORRUPT, EXIT_ENGINE, EXIT_INCONCLUSIVE, EXIT_PASS
from e2e.base.fault import parted
from e2e.base.judgement import CellJudgement, Judgement
from e2e.base.verdict import Reason, Verdict
from e2e.faults.catalogue import FAULTS
from e2e.faults.info import KINDS
from e2e.grid.cells import RERUN
from e2e.report import terminal
from e2e.report.clean import Clean, by_story, false_alarms, summed, table
from e2e.report.document import Document, Heading, Items, Judged, Matrix, Page, PageBlock, Paragraph, Table, Tile
from e2e.report.files import write
from e2e.report.forms import Report
from e2e.report.scores import Score, Told, scores, sentence, total

SCHEMA = "maru-e2e/scoreboard/1"
#: Which check a finding speaks for. The exact oracle is the first two, without any digest.
CHECKS: Mapping[str, tuple[Reason, ...]] = {
    "tokens": (Reason.TOKENS_DIFFER, Reason.BEYOND_NOISE),
    "logprobs": (Reason.LOGPROBS_DIFFER,),
    "first answer": (Reason.FIRST_ANSWER_DIFFERS,),
    "digests": (Reason.DIGEST_DIFFERS,),
    "hits": (Reason.NO_HIT, Reason.PARTIAL_HIT, Reason.SOURCES_DISAGREE, Reason.LOAD_FAILED),
    "isolation": (Reason.NOT_ISOLATED,),
    "freed": (Reason.RESET_REFUSED,),
}
#: Those that find a wrong answer, or the bytes that make one.
WRONG = ("tokens", "logprobs", "first answer", "digests")
#: Names in one sentence.
_FEW = 10
CAUGHT, MISSED, UNDECIDED = "caught", "missed", "undecided"


@dataclass(frozen=True)
class FaultRow:
    """One fault in one cell. ``kind``: one of ``faults.info.KINDS``; ``scenario``: the story of the cell. ``outcome``:
    caught (by a named check, and the clean twin passed), missed, or undecided (it did not fire, the twin did not pass,
    or all that was seen is an engine that failed), with ``why``. ``located``: was the pattern named right; None
    without digests. ``pattern``, ``where``: of the digests' finding that is explained best."""

    fault: str
    kind: str
    scenario: str
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
    """Of one recording or of several. ``clean``: of the cells without a fault, by story, each once. ``errors``: cells
    whose engine failed."""

    rows: tuple[FaultRow, ...] = ()
    clean: tuple[Clean, ...] = ()
    errors: int = 0

    @property
    def alone(self) -> Clean:
        """All clean cells, of whatever story."""
        return summed("all", self.clean)

    def __add__(self, other: Scoreboard) -> Scoreboard:
        return Scoreboard((*self.rows, *other.rows), by_story((*self.clean, *other.clean)), self.errors + other.errors)

    @property
    def scores(self) -> list[Score]:
        told = (Told(row.fault, row.kind, row.scenario, row.outcome == CAUGHT) for row in self.rows)
        return scores(told, kinds=tuple(KINDS), gate=RERUN)

    @property
    def exit_code(self) -> int:
        """What was not decided, for want of a run to its end or of a healthy twin, was not missed either."""
        outcomes = {row.outcome for row in self.rows}
        clean = self.alone
        if clean.alarm_cells or MISSED in outcomes:
            return EXIT_CORRUPT
        if outcomes <= {CAUGHT} and (outcomes or (clean.clean_cells and not clean.clean_left)):
            return EXIT_PASS
        return EXIT_ENGINE if self.errors else EXIT_INCONCLUSIVE


def scoreboard(judgement: Judgement) -> Scoreboard:
    clean = [cell for cell in judgement.cells if cell.fault is None]
    passed: dict[tuple, bool] = {}
    for cell in clean:
        key = _twin_key(cell)
        passed[key] = passed.get(key, True) and cell.verdict is Verdict.PASS
    rows = [_row(cell, passed.get(_twin_key(cell), False)) for cell in judgement.cells if cell.fault is not None]
    return Scoreboard(
        tuple(rows),
        by_story(Clean.of(cell) for cell in clean),
        sum(cell.verdict is Verdict.ERROR for cell in judgement.cells),
    )


def _twin_key(cell: CellJudgement) -> tuple:
    return tuple(sorted((k, str(v)) for k, v in cell.settings.items() if k not in ("fault", "round")))


def _row(cell: CellJudgement, twin_passed: bool) -> FaultRow:
    reasons = {finding.reason for finding in cell.findings}
    digests = [finding.evidence for finding in cell.findings if finding.reason is Reason.DIGEST_DIFFERS]
    if not digests:  # a spoilt cold run is located by the digests too, under its own reason
        digests = [f.evidence for f in cell.findings if f.rule == "digests" and "pattern" in f.evidence]
    # what was computed from wrong KV is wrong, too, and nobody can name that: the finding that is explained best counts
    place = max(digests, key=lambda found: found.get("explained") or 0.0, default={})
    pattern = str(place.get("pattern")) if digests else None
    checks = tuple(name for name, of in CHECKS.items() if reasons & set(of))
    outcome, why = _outcome(cell, checks, fired=Reason.FAULT_NOT_FIRED not in reasons, twin_passed=twin_passed)
    where = (
        f"layer {place['layer']} {place['kv']} head {place['head']} block {place['block']}" if "kv" in place else None
    )
    if where and "wrong_ranks" in place:
        where += f" rank {', '.join(map(str, place['wrong_ranks']))}"
    return FaultRow(
        fault=str(cell.fault),
        kind=_kind(str(cell.fault)),
        scenario=str(cell.settings.get("scenario", RERUN)),
        cell=cell.id.split("-fault_")[0],
        outcome=outcome,
        why=why,
        checks=checks,
        located=None if pattern is None else _located(str(cell.fault), pattern, place),
        pattern=pattern,
        where=where,
        claimed_speedup=cell.ttft.claimed_speedup,
    )


def _outcome(cell: CellJudgement, checks: Sequence[str], *, fired: bool, twin_passed: bool) -> tuple[str, str]:
    """(outcome, why). An engine that crashed, hung or refused is no check: what it shows was not found by looking."""
    stopped = any(finding.reason is Reason.NOT_RUN for finding in cell.findings)
    if not fired:
        return UNDECIDED, Reason.NOT_RUN.sentence if stopped else "the fault did not fire"
    if not twin_passed:
        return UNDECIDED, "the clean twin did not pass"
    why = cell.reason.sentence if cell.reason else ""
    if cell.verdict is Verdict.ERROR:
        return UNDECIDED, why or "error"
    info = FAULTS.get(parted(str(cell.fault))[0])
    if cell.verdict is Verdict.CORRUPT:
        return (CAUGHT, "") if {*checks} & {*WRONG} else (UNDECIDED, why)
    if info and cell.verdict is Verdict.INCONCLUSIVE and {*checks} & {*info.checks}:
        return CAUGHT, ""
    if stopped:
        return UNDECIDED, Reason.NOT_RUN.sentence
    return MISSED, why or "it passed"


def _kind(fault: str) -> str:
    """What strikes one rank alone is of that kind, whatever it does there."""
    name, rank = parted(fault)
    return "rank" if rank is not None else FAULTS[name].kind if name in FAULTS else "unknown"


def _located(fault: str, pattern: str, place: Mapping[str, object]) -> bool:
    """Is it named for what it is, and on the one rank that it struck?"""
    rank = parted(fault)[1]
    known = FAULTS.get(parted(fault)[0])
    return known is not None and pattern in known.patterns and (rank is None or place.get("wrong_ranks") == [rank])


def show(
    board: Scoreboard, *, on: Console, directory: Path | None, ended: bool = True, recordings: Sequence[str] = ()
) -> int:
    """Prints the scoreboard, writes it in all forms, returns the exit code. ``directory``: None where
    nothing is to be written. ``ended``: did every run come to its end? ``recordings``: what they are, where there are
    several."""
    undone = [f"{row.outcome}: {row.fault} in {row.cell}: {row.why}" for row in board.rows if row.outcome != CAUGHT]
    end = [Paragraph(text) for text in (*score_lines(board), false_alarms(board.alone))]
    end.append(Paragraph(_title(board, ended), strong=True))
    terminal.show([Items(recordings), *(_figures(board)), Items(undone), *end], on=on)
    if directory:
        more = {name: value for name, value in asdict(board.alone).items() if name != "scenario"}
        scored = more | {"scores": [asdict(score) for score in board.scores], "recordings": recordings}
        shown = partial(document, board, ended=ended, recordings=recordings)
        report = Report(
            shown, page=lambda: _page(shown(), board), data=lambda: {"schema": SCHEMA} | asdict(board) | scored,
            rows=lambda: [asdict(row) for row in board.rows],
        )  # fmt: skip
        write(report, directory, "scoreboard")
        paths = [f"scoreboard: {directory / 'scoreboard.md'}"]
        paths += [] if recordings else [f"each cell: {directory / 'report.md'}"]
        terminal.show(map(Paragraph, paths), on=on)
    return board.exit_code


HEADINGS = ("fault", "caught", *CHECKS, "located", "claimed speed-up")


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


def score_lines(board: Scoreboard) -> list[str]:
    """Nothing, where nothing was planted."""
    if not board.rows:
        return []
    stories = {row.scenario for row in board.rows}
    return [sentence(total(board.scores), gate=RERUN, stories=stories), *_not_planted(board)]


def _not_planted(board: Scoreboard) -> list[str]:
    """Of the catalogue, what this score does not speak of; by name as long as those are few."""
    planted = {parted(row.fault)[0] for row in board.rows}
    left = [name for name in FAULTS if name not in planted]
    names = f": {', '.join(left)}" if len(left) <= _FEW else ""
    return [f"not planted: {len(left)} of the {len(FAULTS)} faults of the catalogue{names}"] if left else []


def by_kind(board: Scoreboard) -> Table:
    parts = board.scores
    rows = [(s.kind, f"{s.full} of {s.faults}", f"{s.gate} of {s.faults}") for s in (*parts, total(parts))]
    return Table(("kind of fault", "killed", f"by {RERUN} alone"), rows if parts else [])


def verdict_line(board: Scoreboard) -> str:
    counts = {outcome: sum(row.outcome == outcome for row in board.rows) for outcome in (CAUGHT, MISSED, UNDECIDED)}
    rest = ", ".join(f"{count} {outcome}" for outcome, count in counts.items() if count and outcome != CAUGHT)
    return f"{counts[CAUGHT]} of {len(board.rows)} planted faults caught" + (f", {rest}" if rest else "")


def _title(board: Scoreboard, ended: bool) -> str:
    told = verdict_line(board) if board.rows else "nothing was planted"
    return told if ended else f"did not end: {told}"


def document(board: Scoreboard, *, ended: bool = True, recordings: Sequence[str] = ()) -> Document:
    headings = ("fault", "cell", "outcome", "seen by", "pattern", "first wrong place")
    rows = [
        (
            row.fault, row.cell, Judged(row.outcome + (f": {row.why}" if row.why else "")),
            ", ".join(row.checks) or "-",
            (row.pattern or "-") + (" (wrong)" if row.located is False else ""), row.where or "-",
        )
        for row in board.rows
    ]  # fmt: skip
    planted = [FAULTS[name] for name in dict.fromkeys(parted(row.fault)[0] for row in board.rows) if name in FAULTS]
    meant = [(fault.name, fault.kind, fault.what, fault.stands_for) for fault in planted]
    return [
        Heading(_title(board, ended), level=1), Items(recordings), *_figures(board),
        *map(Paragraph, score_lines(board)), Paragraph(false_alarms(board.alone)),
        Heading("What was planted"), Table(("fault", "kind", "what it does", "what it stands for"), meant, left=4),
        Heading("What was seen"), Table(headings, rows, left=6),
    ]  # fmt: skip


def _page(shown: Document, board: Scoreboard) -> Page:
    return [shown[0], *_matrix(board), Heading("Figures"), *shown[1:]]


def _matrix(board: Scoreboard) -> list[PageBlock]:
    """Faults down, cells and stories across: the worst that came out there."""
    places = list(dict.fromkeys((row.cell, row.scenario) for row in board.rows))
    rows: dict[str, dict[tuple[str, str], str]] = {}
    for row in board.rows:
        found, place = rows.setdefault(row.fault, {}), (row.cell, row.scenario)
        found[place] = max(found.get(place, row.outcome), row.outcome, key=(CAUGHT, UNDECIDED, MISSED).index)
    if not rows:
        return []
    columns = [cell if scenario == RERUN else f"{cell} {scenario}" for cell, scenario in places]
    tiles = [(f, [Tile(Judged(of[p])) if p in of else None for p in places]) for f, of in rows.items()]
    return [Heading("Faults by cell"), Matrix("fault", columns, tiles)]


def _figures(board: Scoreboard) -> list[Table]:
    planted = [_summary(board), by_kind(board)] if board.rows else []
    return [*planted, *table(board.clean)]


def _summary(board: Scoreboard) -> Table:
    return Table(
        HEADINGS,
        summary(board),
        optional=("freed", "isolation", "hits", "first answer", "claimed speed-up", "tokens", "logprobs"),
    )
