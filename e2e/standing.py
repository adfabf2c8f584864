"""How a run stands while it goes on: each cell is judged as it ends, so that whatever ends the run loses no verdict."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from e2e.base.errors import EXIT_CORRUPT, Stopped, UsageError
from e2e.base.event import Event, Record
from e2e.base.judgement import CellJudgement
from e2e.judge.cells import judge, judge_cell
from e2e.report.files import write_reports

#: Reports are written anew after a cell as long as that takes no more than this share of the run's time.
REPORT_SHARE = 0.02


class Standing:
    """``record`` is the journal's; ``before``: events of earlier attempts; ``directory``: where reports go."""

    def __init__(self, record: Record, *, before: Sequence[Event] = (), directory: Path, strict: bool = False) -> None:
        self._record, self._events = record, list(before)
        self._directory, self._strict = directory, strict
        self._known: dict[str, CellJudgement] = {}
        self._written_s, self._cost_s = time.monotonic(), 0.0

    def record(self, kind: str, **data: object) -> Event:
        event = self._record(kind, **data)
        self._events.append(event)
        return event

    def knows(self, cell: str) -> bool:
        return cell in self._known

    def judged(self, cell: str) -> CellJudgement:
        """The verdict of a cell that has just ended, however; its report is written if that is cheap."""
        self._known[cell] = judge_cell(self._events, cell, strict=self._strict)
        if self._cost_s <= REPORT_SHARE * (time.monotonic() - self._written_s):
            self._write()
        return self._known[cell]

    def _write(self) -> None:
        """What can't be written now is said at the end."""
        began_s = time.monotonic()
        now = judge(self._events, strict=self._strict, known=self._known)
        with contextlib.suppress(UsageError):
            write_reports(self._events, now, directory=self._directory)
        self._written_s = time.monotonic()
        self._cost_s = self._written_s - began_s


@contextmanager
def judged_on_the_way_out(record: Record, report: Callable[[], int]) -> Iterator[None]:
    """Around a run that records: when a signal or an error ends it early, what was recorded so far is judged and
    reported. A corrupt cell among it decides the exit code of a stopped run. ``report`` gives the exit code."""
    try:
        yield
    except Stopped as stopped:
        with contextlib.suppress(Exception):
            record("note", text=f"The run did not end: {signal.Signals(stopped.number).name} stopped it.")
        try:
            code = report()
        except UsageError as error:  # what stopped it stays the reason, also where no report can be written
            code = error.exit_code
        if code == EXIT_CORRUPT:
            stopped.exit_code = code
        raise
    except BaseException:
        with contextlib.suppress(Exception):  # the first error is the one to tell
            report()
        raise
