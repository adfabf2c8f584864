"""What a person sees while a run goes on, on stderr: one line a cell as it is judged, elapsed time and time left; on a
terminal also a line that tells what is going on right now."""

from __future__ import annotations

import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TextIO

from rich.console import Console, RenderableType
from rich.progress import BarColumn, ProgressColumn, SpinnerColumn, Task, TextColumn
from rich.progress import Progress as Bar
from rich.text import Text

from e2e.base.judgement import CellJudgement
from e2e.base.verdict import Verdict
from e2e.report.console import COLOURS
from e2e.report.escape import one_line
from e2e.report.sentences import verdict_text
from e2e.report.terminal import console

#: Kinds of steps that are counted as n of m; the others only take time.
COUNTED = ("cell", "branch")


class Pace:
    """Time left, from what is left per kind of step ("start", "baseline", "cell", "branch") and how long one took.
    ``at_once``: about so many steps."""

    def __init__(self, steps: Mapping[str, int], *, at_once: int = 1) -> None:
        self.steps, self._at_once = dict(steps), at_once
        self._took_s: dict[str, list[float]] = defaultdict(list)

    def done(self, kind: str, took_s: float) -> None:
        self._took_s[kind].append(took_s)
        self.steps[kind] = max(self.steps.get(kind, 0) - 1, 0)

    def left_s(self) -> float | None:
        """None until each kind of step that is left was done once."""
        left = [kind for kind, number in self.steps.items() if number]
        if any(not self._took_s[kind] for kind in left):
            return None
        alone_s = sum(self.steps[kind] * sum(self._took_s[kind]) / len(self._took_s[kind]) for kind in left)
        return alone_s / self._at_once


class Progress:
    """As a context manager. ``steps``: kind -> how many there will be in all; see ``Pace``. Several threads may share
    it."""

    def __init__(
        self, stream: TextIO, steps: Mapping[str, int], *, at_once: int = 1,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        self._on, self._clock = console(stream), clock
        self._lock = threading.RLock()
        self._pace = Pace(steps, at_once=at_once)
        self._total = sum(steps.get(kind, 0) for kind in COUNTED)
        self._count, self._began_s = 0, clock()
        alive = stream.isatty() and not self._on.is_dumb_terminal
        self._bar = _Bar(self._on, self._left) if alive else None
        self._task = self._bar.add_task("", total=self._total) if self._bar else None

    def __enter__(self) -> Progress:
        if self._bar:
            self._bar.start()
        return self

    def __exit__(self, *exc: object) -> None:
        if self._bar:
            self._bar.stop()

    def todo(self, steps: Mapping[str, int]) -> None:
        """What is left from now on; else every step that is done is one less."""
        self._pace.steps = dict(steps)

    @contextmanager
    def step(self, kind: str, doing: str) -> Iterator[None]:
        """Around one step; one that raises is not timed."""
        if self._bar:
            self._bar.doing = one_line(doing)
        elif kind not in COUNTED:
            self.say(doing)
        began_s = self._clock()
        yield
        with self._lock:
            self._pace.done(kind, self._clock() - began_s)

    def judged(self, cell: CellJudgement) -> None:
        word = verdict_text(cell)
        if cell.fault and cell.verdict in (Verdict.CORRUPT, Verdict.PASS):
            seen = cell.verdict is Verdict.CORRUPT
            self.counted("caught" if seen else "missed", cell.id, style="green" if seen else "bold red")
        else:
            self.counted(word, cell.id, style=COLOURS[cell.verdict])

    def counted(self, word: str, name: str, *, style: str = "") -> None:
        """``[7/16] 03:12 pass HND-layerwise 4 min left``"""
        with self._lock:
            self._count += 1
            self._total = max(self._total, self._count)
            line = Text(f"{self._place()} ").append(one_line(word), style=style).append(f" {one_line(name)}")
            if self._bar:
                self._bar.update(self._task, completed=self._count, total=self._total)
            elif left := self._left():
                line.append(f" {left}")
            self._print(line)

    def say(self, text: str) -> None:
        self._print(Text(f"{self._place()} {one_line(text)}"))

    def _place(self) -> str:
        return f"[{self._count}/{self._total}] {_elapsed(self._clock() - self._began_s)}"

    def _left(self) -> str:
        with self._lock:
            left_s = self._pace.left_s()
        return f"{about(left_s)} left" if left_s else ""

    def _print(self, line: Text) -> None:
        """Never folded: a cell's id must be whole wherever it is copied from."""
        (self._bar.console if self._bar else self._on).print(line, soft_wrap=True)


@contextmanager
def said_if_slow(text: str, *, after_s: float = 1.0) -> Iterator[None]:
    """On stderr, when what is inside takes longer than a reader would wait without a word."""
    timer = threading.Timer(after_s, lambda: print(one_line(text), file=sys.stderr, flush=True))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


class _Bar(Bar):
    """Two lines: how far it is, and what is going on, which has a line to itself since a cell's id is long."""

    doing = ""

    def __init__(self, on: Console, left: Callable[[], str]) -> None:
        class Left(ProgressColumn):
            def render(self, task: Task) -> Text:
                return Text(", ".join(filter(None, (_elapsed(task.elapsed or 0), left()))))

        counted = TextColumn("{task.completed} of {task.total}")
        columns = (SpinnerColumn(), BarColumn(30), counted, Left())
        super().__init__(*columns, console=on, transient=True, redirect_stdout=False, redirect_stderr=False)

    def get_renderables(self) -> Iterator[RenderableType]:
        yield self.make_tasks_table(self.tasks)
        yield Text(self.doing, no_wrap=True, overflow="ellipsis", style="dim")


def about(seconds: float) -> str:
    """``50 s``, ``4 min``, ``1 h 10 min``."""
    if seconds < 100:
        return f"{max(round(seconds, -1), 10):.0f} s"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes:02} min" if hours else f"{minutes} min"


def _elapsed(seconds: float) -> str:
    hours, rest = divmod(int(seconds), 3600)
    return f"{hours}:{rest // 60:02}:{rest % 60:02}" if hours else f"{rest // 60:02}:{rest % 60:02}"
