"""Cells in which nothing is planted: how many were played and judged, and how many of them raised a false alarm."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from e2e.base.judgement import CellJudgement
from e2e.base.spelling import count
from e2e.base.verdict import Reason, Verdict
from e2e.grid.cells import RERUN
from e2e.report.document import Table


@dataclass(frozen=True)
class Clean:
    """Of one story. ``clean_left``: cells that are neither pass nor corrupt; ``not_run``: those of them that their run
    did not come to, or not to their end. ``replays``: external answers of the
    others, each compared as a whole; ``alarms``: those of cells that were corrupt, ``alarm_cells``."""

    scenario: str
    clean_cells: int = 0
    clean_left: int = 0
    replays: int = 0
    alarms: int = 0
    alarm_cells: int = 0
    not_run: int = 0

    @classmethod
    def of(cls, cell: CellJudgement) -> Clean:
        corrupt, left = cell.verdict is Verdict.CORRUPT, cell.verdict not in (Verdict.PASS, Verdict.CORRUPT)
        return cls(
            str(cell.settings.get("scenario", RERUN)), 1, left, cell.replays * (not left), cell.replays * corrupt,
            int(corrupt), int(cell.reason is Reason.NOT_RUN),
        )  # fmt: skip

    @property
    def clean_played(self) -> int:
        """Programs that were played to their end and judged."""
        return self.clean_cells - self.clean_left


def summed(scenario: str, parts: Iterable[Clean]) -> Clean:
    parts = tuple(parts)
    names = ("clean_cells", "clean_left", "replays", "alarms", "alarm_cells", "not_run")
    return Clean(scenario, *(sum(getattr(part, name) for part in parts) for name in names))


def by_story(parts: Iterable[Clean]) -> tuple[Clean, ...]:
    """One a story, in the order in which they were first told."""
    of: dict[str, list[Clean]] = {}
    for part in parts:
        of.setdefault(part.scenario, []).append(part)
    return tuple(summed(scenario, found) for scenario, found in of.items())


def false_alarms(clean: Clean) -> str:
    """Of programs and of answers, each with its bound."""
    text = f"false alarms: {_of(clean.alarm_cells, clean.clean_played, 'clean program')}, "
    text += _of(clean.alarms, clean.replays, "clean answer")
    left = clean.clean_left - clean.not_run
    text += f"; {count(left, 'clean cell')} could not be judged" if left else ""
    return text + (f"; {count(clean.not_run, 'clean cell')} not run to the end" if clean.not_run else "")


def _of(alarms: int, trials: int, what: str) -> str:
    return f"{alarms} of {count(trials, what)}" + (
        f" (below about {bound})" if (bound := _bound(alarms, trials)) else ""
    )


def _bound(alarms: int, trials: int) -> str:
    """What n trials allow: 0 of n leaves a rate below about 3 / n (95 %). Nothing where there was an alarm."""
    return f"{min(3 / trials, 1):.2%}" if trials and not alarms else ""


def table(stories: tuple[Clean, ...]) -> list[Table]:
    """One line a story, where there are several."""
    rows = [
        (
            story.scenario, str(story.clean_played), str(story.replays), str(story.alarm_cells),
            str(story.clean_left - story.not_run), str(story.not_run),
        )
        for story in stories
    ]  # fmt: skip
    headings = ("clean programs of", "played", "answers", "false alarms", "not judged", "not run")
    return [Table(headings, rows, optional=headings[-1:])] if len(rows) > 1 else []
