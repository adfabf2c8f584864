"""The corrupt cell of a recording: what it did, with which settings, and by which checks it is corrupt."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import ValidationError

from e2e.base.errors import RecordingError, UsageError
from e2e.base.judgement import CellJudgement
from e2e.base.program import Program, plainly
from e2e.base.spelling import hint
from e2e.base.verdict import Reason, Verdict
from e2e.grid.axes import Value
from e2e.judge import assemble
from e2e.judge.cells import judge
from e2e.recording.journal import read
from e2e.recording.resume import settings_of
from e2e.report.facts import facts
from e2e.settings.settings import RECORDING, Settings

#: Of a cell's settings: the number of a repetition, which a candidate has of its own.
ROUND = "round"


@dataclass(frozen=True)
class Case:
    """What is played in one cell. ``what``: in words, in what it is smaller than the one before."""

    settings: Mapping[str, Value]
    program: Program
    what: str = field(default="as it was", compare=False)


@dataclass(frozen=True)
class Failed:
    """``run``: as in report.json."""

    judged: CellJudgement
    case: Case
    settings: Settings
    run: Mapping[str, object]

    def again(self, judged: CellJudgement) -> bool:
        """Is it the same failure: corrupt by a check of the same kind, and nothing found that was not found here?"""
        kinds, now = reasons(self.judged), reasons(judged)
        return judged.verdict is Verdict.CORRUPT and now <= kinds and bool(corrupt(now) & corrupt(kinds))


def reasons(judged: CellJudgement) -> set[Reason]:
    return {finding.reason for finding in judged.findings}


def corrupt(among: set[Reason]) -> set[Reason]:
    return {reason for reason in among if reason.verdict is Verdict.CORRUPT}


def failed_cell(folder: Path, cell: str | None) -> Failed:
    """``cell``: its id, or None for the only corrupt one. UsageError where there is none."""
    events = read(folder / RECORDING)
    chosen = _chosen([each for each in judge(events).cells if each.verdict is Verdict.CORRUPT], folder, cell)
    planned = [e.data for e in events if e.kind == "plan.cell" and e["cell"] == chosen.id]
    plan = next(data for data in planned if data["attempt"] == chosen.attempt)
    case = Case({axis: value for axis, value in chosen.settings.items() if axis != ROUND}, assemble.program(plan))
    try:
        settings = Settings.recorded({**settings_of(events), "program": plainly(case.program), "strict": False})
    except ValidationError as error:
        key = ".".join(str(part) for part in error.errors()[0]["loc"])
        raise RecordingError(
            f"the recording in {folder} has settings that this version can't use ({key}); run the cell again."
        ) from error
    if settings.attach:
        raise UsageError(
            f"the run in {folder} was on an engine of somebody else (--attach), and shrinking needs engines of its own."
        )
    return Failed(chosen, case, settings, facts(events).run)


def _chosen(cells: list[CellJudgement], folder: Path, cell: str | None) -> CellJudgement:
    ids = [each.id for each in cells]
    if not cells:
        raise UsageError(f"no cell of {folder} is corrupt, so there is nothing to shrink; see maru-e2e judge {folder}.")
    if cell is None and len(cells) > 1:
        raise UsageError(f"{len(cells)} cells of {folder} are corrupt; name one by --cell, such as --cell {ids[0]}.")
    if cell is not None and cell not in ids:
        raise UsageError(f"--cell: no corrupt cell of {folder} is called {cell!r}; {hint(cell, ids)}")
    return cells[ids.index(cell) if cell else 0]
