"""How a run stands while it goes on: each cell is judged as it ends, so that whatever ends the run loses no verdict."""

from __future__ import annotations

import contextlib
import signal
import threading
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


class Halted(BaseException):
    """Ends whoever works beside what ended the run; see ``Standing.halt``."""


class Standing:
    """``record`` is the journal's; ``before``: events of earlier attempts; ``directory``: where reports go. Several
    threads may share it."""

    def __init__(self, record: Record, *, before: Sequence[Event] = (), directory: Path, strict: bool = False) -> None:
        self._recording, self._judging = threading.RLock(), threading.RLock()
        self._over: int | None = None
        self._heard = threading.local()
        self._record, self._events = record, list(before)
        self._directory, self._strict = directory, strict
        self._known: dict[str, CellJudgement] = {}
        self._written_s, self._cost_s = time.monotonic(), 0.0

    def record(self, kind: str, **data: object) -> Event:
        """Raises Halted once in each thread but one after that one has called ``halt``: so they unwind as on a signal,
        and what they record on the way out still counts."""
        if self._over not in (None, threading.get_ident()) and not getattr(self._heard, "said", False):
            self._heard.said = True
            raise Halted
        with self._recording:
            event = self._record(kind, **data)
            self._events.append(event)
            return event

    def halt(self) -> None:
        """From now on nobody but the caller goes on."""
        self._over = threading.get_ident()

    def knows(self, cell: str) -> bool:
        return cell in self._known

    def judged(self, cell: str) -> CellJudgement:
        """The verdict of a cell that has just ended, however; its report is written if that is cheap."""
        with self._judging:
            with self._recording:
                events = list(self._events)
            self._known[cell] = judge_cell(events, cell, strict=self._strict)
            if self._cost_s <= REPORT_SHARE * (time.monotonic() - self._written_s):
                self._write(events)
            return self._known[cell]

    def _write(self, events: Sequence[Event]) -> None:
        """What can't be written now is said at the end."""
        began_s = time.monotonic()
        now = judge(events, strict=self._strict, known=self._known)
        with contextlib.suppress(UsageError):
            write_reports(events, now, directory=self._directory)
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
